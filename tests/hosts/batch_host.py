#!/usr/bin/env python3
"""Imitations of the daemons and tools of PBS, LSF, Grid Engine and Flux, for test hosts without them.

batch_host.py serve            PBS's MoM, LSF's RES, Grid Engine's execd and Flux's broker of this host: starts tasks
                               for those below
pbsdsh -n INDEX -- PROGRAM …   as PBS's: on the host that line INDEX of PBS_NODEFILE names. The task
                               gets the job's environment and not ours, an empty stdin, and the job's
                               files as stdout and stderr; its exit code is printed, not returned. On
                               SIGTERM it gets that signal, too. It outlives us.
blaunch HOST COMMAND …         as LSF's: a shell there runs the words, with our environment, folder,
                               stdin, stdout and stderr, and we end as it does. It ends with us.
qrsh -inherit HOST COMMAND …   as Grid Engine's: as blaunch, with the job's environment and not ours
flux getattr hostlist          as Flux's: the hosts of the instance, and of a job of it
flux jobs … ID
flux exec --rank=N --dir=DIR COMMAND …
                               as Flux's: the broker there runs the words, without a shell, in DIR, with our
                               environment but for its own FLUX_URI; else as blaunch.

The folder $BATCH_JOB describes the job: its environment in `env`, its hosts in `nodes`, its files in
`out` and `err`, and the tasks that run on a host in `tasks.HOST`, for the sender of a signal to the job.
"""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading

PORT = 15002


def send(conn, kind, data=b""):
    conn.sendall(struct.pack("!cI", kind, len(data)) + data)


def exactly(conn, size):
    data = b""
    while len(data) < size:
        more = conn.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def receive(conn):
    kind, size = struct.unpack("!cI", exactly(conn, 5))
    return kind, exactly(conn, size)


def run_of_pbs(conn, request):
    """Runs one task of a PBS job to its end, even if its requester ends."""
    job = request["job"]
    env = dict(line.split("=", 1) for line in open(f"{job}/env").read().splitlines())
    if request["cookie"] != env["PBS_JOBCOOKIE"]:
        return send(conn, b"x", b"not of this job")
    env.update(PBS_TASKNUM="2", PBS_NODENUM=str(request["index"]), TMPDIR=os.environ["TMPDIR"])
    with open(f"{job}/out", "ab") as out, open(f"{job}/err", "ab") as err:
        task = subprocess.Popen(request["argv"], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                cwd=env["HOME"], start_new_session=True)

    def listen():
        try:
            while True:
                task.send_signal(int(receive(conn)[1]))
        except (EOFError, OSError):
            pass

    threading.Thread(target=listen, daemon=True).start()
    return note_and_wait(conn, job, task)


def run_connected(conn, request):
    """Runs one task of blaunch or flux exec: our connection is its terminal, and it ends with that."""
    env = dict(request["env"], TMPDIR=os.environ["TMPDIR"], **request["there"])
    if "FLUX_URI" in env:
        env["FLUX_URI"] = f"local:///run/flux/{socket.gethostname()}"
    argv = ["/bin/sh", "-c", " ".join(request["argv"])] if request["shell"] else request["argv"]
    task = subprocess.Popen(argv, env=env, cwd=request["cwd"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, start_new_session=True)

    def listen():
        try:
            while True:
                kind, data = receive(conn)
                if kind == b"s":
                    task.send_signal(int(data))
                elif data:
                    task.stdin.write(data)
                    task.stdin.flush()
                else:
                    task.stdin.close()
        except EOFError:
            task.stdin.close()
            os.killpg(task.pid, signal.SIGTERM)
        except OSError:
            pass

    def show(stream, kind):
        while data := os.read(stream.fileno(), 65536):
            send(conn, kind, data)

    shown = [threading.Thread(target=show, args=[task.stdout, b"o"], daemon=True),
             threading.Thread(target=show, args=[task.stderr, b"e"], daemon=True)]
    for thread in [threading.Thread(target=listen, daemon=True), *shown]:
        thread.start()
    for thread in shown:
        thread.join()
    return note_and_wait(conn, request["job"], task)


def note_and_wait(conn, job, task):
    with open(f"{job}/tasks.{socket.gethostname()}", "a") as tasks:
        print(task.pid, file=tasks)
    try:
        send(conn, b"x", str(task.wait()).encode())
    except OSError:
        pass


def answer(conn):
    try:
        request = json.loads(receive(conn)[1])
    except EOFError:
        return  # the client only checked that we are there
    try:
        (run_of_pbs if request["kind"] == "pbs" else run_connected)(conn, request)
    except OSError as error:
        send(conn, b"x", str(error).encode())


def serve():
    server = socket.create_server(("", PORT))
    while True:
        threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()


def ask(host, request):
    conn = socket.create_connection((host, PORT))
    send(conn, b"r", json.dumps(request).encode())
    return conn


def pbsdsh(words):
    if words[0] != "-n" or words[2] != "--":
        sys.exit("pbsdsh: what the test's knows is -n INDEX -- PROGRAM")
    index = int(words[1])
    hosts = open(os.environ["PBS_NODEFILE"]).read().split()
    conn = ask(hosts[index], {"kind": "pbs", "job": os.environ["BATCH_JOB"], "index": index, "argv": words[3:],
                              "cookie": os.environ["PBS_JOBCOOKIE"]})

    def pass_on(number, _):
        send(conn, b"s", str(number).encode())
        os._exit(1)

    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, pass_on)
    _, status = receive(conn)
    if status != b"0":
        print(f"pbsdsh: task 0x00000000 exit status {status.decode()}", flush=True)


def blaunch(words):
    be_there(words[0], {"argv": words[1:], "cwd": os.getcwd(), "there": {"LSF_PM_TASKID": "2"}, "shell": True})


def qrsh(words):
    if words[0] != "-inherit":
        sys.exit("qrsh: what the test's knows is -inherit HOST COMMAND")
    job = os.environ["BATCH_JOB"]
    env = dict(line.split("=", 1) for line in open(f"{job}/env").read().splitlines())
    be_there(words[1], {"argv": words[2:], "cwd": env["HOME"], "there": {}, "shell": True, "env": env})


def flux(words):
    hosts = open(os.environ["BATCH_JOB"] + "/nodes").read().split()
    if words == ["getattr", "hostlist"] or words[:3] == ["jobs", "--no-header", "--format={nodelist}"]:
        print(",".join(hosts))
    elif words[0] == "exec" and words[1].startswith("--rank=") and words[2].startswith("--dir="):
        be_there(hosts[int(words[1][7:])], {"argv": words[3:], "cwd": words[2][6:], "there": {}, "shell": False})
    else:
        sys.exit(f"flux: the test's knows no {words}")


def be_there(host, request):
    conn = ask(host, {"env": dict(os.environ), **request, "kind": "connected", "job": os.environ["BATCH_JOB"]})

    def give_input():
        while data := os.read(0, 65536):
            send(conn, b"i", data)
        send(conn, b"i")

    def pass_on(number, _):
        send(conn, b"s", str(number).encode())

    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, pass_on)
    threading.Thread(target=give_input, daemon=True).start()
    while True:
        kind, data = receive(conn)
        if kind == b"x" and not data.lstrip(b"-").isdigit():
            sys.exit(data.decode())
        if kind == b"x":
            os._exit(int(data) if int(data) >= 0 else 128 - int(data))
        os.write(2 if kind == b"e" else 1, data)


if __name__ == "__main__":
    name = os.path.basename(sys.argv[0])
    if name == "pbsdsh":
        pbsdsh(sys.argv[1:])
    elif name == "blaunch":
        blaunch(sys.argv[1:])
    elif name == "qrsh":
        qrsh(sys.argv[1:])
    elif name == "flux":
        flux(sys.argv[1:])
    elif sys.argv[1:] == ["serve"]:
        serve()
    else:
        sys.exit(__doc__)
