#!/usr/bin/env python3
"""A host on the network without the job's secret.

usage: attacker.py listen INTERFACE FILE        records all TCP payload that passes there
       attacker.py replay FILE                  sends the recorded payload again, to the same targets
       attacker.py fuzz N FILE HOST:PORT...     sends so many slightly wrong handshakes
       attacker.py silent N SECONDS HOST:PORT   keeps so many silent connections, for so long

Prints its results: the number of bytes, and "WELCOME" if a process accepted it as a member of the job.
The file has lines "SOURCE PORT TARGET PORT HEX"."""

import collections
import errno
import random
import resource
import select
import socket
import struct
import sys
import time

WELCOME = 4  # rendezvous/handshake.cc: a message's type follows its length


def listen(interface, path):
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.bind((interface, 0))
    with open(path, "w", encoding="ascii") as out:
        while True:
            packet = tap.recv(65535)
            if packet[12:14] != b"\x08\x00" or packet[23] != socket.IPPROTO_TCP:
                continue
            at = 14 + (packet[14] & 15) * 4
            end = 14 + struct.unpack(">H", packet[16:18])[0]
            source, target = struct.unpack(">HH", packet[at:at + 4])
            data = packet[at + (packet[at + 12] >> 4) * 4:end]
            if data:
                print(socket.inet_ntoa(packet[26:30]), source, socket.inet_ntoa(packet[30:34]), target,
                      data.hex(), file=out, flush=True)


def sent(path):
    """Returns the first bytes, by connection and direction."""
    flows = collections.defaultdict(bytes)
    with open(path, encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if line.endswith("\n") and len(flows[tuple(words[:4])]) < 4096:
                flows[tuple(words[:4])] += bytes.fromhex(words[4])
    return flows


class Learned:
    def __init__(self):
        self.bytes, self.refused, self.welcome = 0, 0, False

    def take(self, answer):
        self.bytes += len(answer)
        while len(answer) > 2:
            size = struct.unpack("<H", answer[:2])[0]
            self.welcome |= answer[2] == WELCOME
            answer = answer[2 + size:]

    def say(self):
        print(f"{self.bytes} bytes, {self.refused} not let in" + (", WELCOME" if self.welcome else ""))


def try_with(learned, host, port, pieces, patience=0.1):
    """Sends a piece, reads the answer, and goes on with the next."""
    try:
        with socket.create_connection((host, port), 5) as s:
            for piece in pieces:
                s.sendall(piece)
                if patience and select.select([s], [], [], patience)[0]:
                    answer = s.recv(65536)
                    learned.take(answer)
                    if not answer:
                        return
    except OSError:
        learned.refused += 1


def messages(data):
    """Returns the handshake messages at the front, then the rest."""
    found = []
    while len(found) < 2 and len(data) > 2:
        size = 2 + struct.unpack("<H", data[:2])[0]
        found.append(data[:size])
        data = data[size:]
    return found + ([data] if data else [])


def replay(path):
    learned = Learned()
    for (_, _, target, port), data in sent(path).items():
        try_with(learned, target, int(port), messages(data))
        try_with(learned, target, int(port), [data])
    learned.say()


def fuzzed(hello):
    data, way = bytearray(hello), random.randrange(6)
    if way == 0:
        return random.randbytes(random.randrange(1, 300))
    if way == 1:
        return random.choice([b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff\xff\xff\x7f",
                              b"\x00\x00", b"\xff" * 1024])
    if way == 2:
        return bytes(data[:random.randrange(1, len(data))])
    if way == 3:
        data[:2] = struct.pack("<H", random.randrange(65536))
    for _ in range(random.randrange(1, 5)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data) + (random.randbytes(100) if way == 4 else b"")


def fuzz(count, path, places):
    random.seed(count)
    learned = Learned()
    hellos = [messages(data)[0] for data in sent(path).values() if data[3:6] == b"DLN"] or [bytes(64)]
    for i in range(count):
        host, port = places[i % len(places)].rsplit(":", 1)
        hello = fuzzed(random.choice(hellos))
        try_with(learned, host, int(port), [hello], 0.1 if i % 50 == 0 else 0)
    learned.say()


def silent(count, seconds, place):
    resource.setrlimit(resource.RLIMIT_NOFILE, (count + 64, count + 64))
    host, port = place.rsplit(":", 1)
    held, tries = {}, 0
    poll = select.epoll()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        while len(held) < count:
            s = socket.socket()
            s.setblocking(False)
            if s.connect_ex((host, int(port))) not in (0, errno.EINPROGRESS):
                s.close()
                break
            held[s.fileno()] = s
            poll.register(s, select.EPOLLRDHUP | select.EPOLLIN)
            tries += 1
            if tries == count:
                print("all there", flush=True)
        for fd, _ in poll.poll(0.05):  # the server closed it: connect again
            poll.unregister(fd)
            held.pop(fd).close()


def main():
    what, args = sys.argv[1], sys.argv[2:]
    if what == "listen":
        listen(args[0], args[1])
    elif what == "replay":
        replay(args[0])
    elif what == "fuzz":
        fuzz(int(args[0]), args[1], args[2:])
    else:
        silent(int(args[0]), float(args[1]), args[2])


if __name__ == "__main__":
    main()
