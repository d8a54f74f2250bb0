"""Runs a command on a new terminal of 60 columns, or $SCREEN_COLUMNS. Prints what stands there at the end. Before
that, each time that the patterns in the file `look` are all there, it prints what stands there then, and renames
`look` to `seen`."""
import fcntl, os, pty, re, select, struct, sys, termios, time
pid, master = pty.fork()
columns = int(os.environ.get("SCREEN_COLUMNS", 60))
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    os.execvp(sys.argv[1], sys.argv[1:])
rows, at, column = [[]], 0, 0
def show(text):
    global at, column
    for part in re.findall(r"\x1b\[[0-9;]*[A-Za-z]|.|\n|\r", text):
        if part == "\n":
            at += 1
            if at == len(rows): rows.append([])
        elif part == "\r": column = 0
        elif part.endswith("A") and part[0] == "\x1b": at -= int(part[2:-1] or 1)
        elif part.endswith("J") and part[0] == "\x1b": del rows[at + 1:], rows[at][column:]
        elif part.endswith("K") and part[0] == "\x1b": del rows[at][column:]
        elif part[0] != "\x1b":
            rows[at] += [" "] * (column - len(rows[at]))
            rows[at][column:column + 1] = [part]
            column += 1
            if column >= columns: sys.exit(f"a row of more than {columns - 1} columns: {''.join(rows[at])}")
def screen():
    return [re.sub(" *$", "", "".join(row)) for row in rows]
rest, deadline = b"", time.monotonic() + 150
while True:
    if time.monotonic() > deadline: sys.exit(f"it does not end; there stands {screen()}")
    try:
        if select.select([master], [], [], 0.05)[0]: rest += os.read(master, 65536)
    except OSError:
        break
    try:
        text = rest.decode(); rest = b""
    except UnicodeDecodeError:
        continue  # only a part of a character has come
    show(text)
    if os.path.exists("look") and all(re.search(line.strip(), "\n".join(screen()), re.M) for line in open("look")):
        print("\n".join(screen()) + "\n--"); os.rename("look", "seen")
print("\n".join(screen()))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
