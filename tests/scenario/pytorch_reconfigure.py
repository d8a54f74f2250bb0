"""A member of groups that c10d's recovery API makes, for pytorch_reconfigure.sh.

usage: pytorch_reconfigure.py FOLDER NAME: NAME is a, b, c, d, which dies, or e, which comes later.
The members tell each other by files in FOLDER what they have to know.
"""

import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import dlaunch
import dlaunch.torch

FOLDER, NAME = sys.argv[1:]
PATIENCE = 60


def put(key, value=""):
    with open(f"{FOLDER}/{key}.{NAME}.new", "w") as file:
        file.write(value)
    os.rename(f"{FOLDER}/{key}.{NAME}.new", f"{FOLDER}/{key}.{NAME}")


def get(key, name):
    end = time.monotonic() + PATIENCE
    while not os.path.exists(f"{FOLDER}/{key}.{name}"):
        assert time.monotonic() < end, f"{NAME} has waited for {key} of {name} in vain"
        time.sleep(0.01)
    with open(f"{FOLDER}/{key}.{name}") as file:
        return file.read()


def handles_of(names):
    return [get("handle", name) for name in names]


def all_of(names, key):
    """Each has come to this place."""
    put(key)
    for name in names:
        get(key, name)


def reconfigure(uuid, handles, seconds=PATIENCE):
    return dist._reconfigure(uuid, handles, timeout=timedelta(seconds=seconds))


def fails(kind, words, call, *given, **more):
    try:
        call(*given, **more)
    except kind as error:
        assert re.search(words, str(error)), f"'{error}' lacks '{words}'"
        return
    raise AssertionError(f"nothing was raised that says '{words}'")


def use(rank, size):
    """The calls give what they should."""
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    x = torch.arange(1000.0) * (rank + 1)
    dist.all_reduce(x)
    assert x.eq(torch.arange(1000.0) * (size * (size + 1) // 2)).all()
    parts = [torch.empty(2, dtype=torch.long) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([rank, rank]))
    assert [part[0].item() for part in parts] == list(range(size))
    out = torch.empty(size)
    dist.all_to_all_single(out, torch.full((size,), float(rank)))
    assert out.tolist() == list(range(size))
    dist.barrier()


def meet(uuid, names):
    assert reconfigure(uuid, handles_of(names)).wait()
    use(names.index(NAME), len(names))


def before_the_first():
    assert dist._supports_reconfigure()
    own = dist._get_reconfigure_handle()
    assert own == dist._get_reconfigure_handle()
    put("handle", own)
    fails(RuntimeError, r"no communicator: .*call reconfigure\(\) first", dist.all_reduce, torch.ones(1))
    fails(ValueError, "no handle was given", reconfigure, 1, [])
    fails(ValueError, "'gloo:0' is no handle of dlring", reconfigure, 1, [own, "gloo:0"])
    fails(ValueError, r"the handle of \d+@\S+ was given twice", reconfigure, 1, [own, own])
    other = own.replace(":1:", ":2:", 1)
    fails(ValueError, "handle of this group itself is missing", reconfigure, 1, {other})
    assert reconfigure(1, {own}).get_future().wait() == []
    use(0, 1)


def work_under_way(uuid, names):
    """What is under way when its group is reconfigured fails, also where all its ranks live."""
    works = []
    if NAME != "b":
        works.append(dist.all_reduce(torch.ones(1 << 20), async_op=True))
        works.append(dist.barrier(async_op=True))
        works.append(dist.irecv(torch.ones(3), dist.get_rank() ^ 1, tag=5))
    all_of(names, "started")
    meet(uuid, names)
    for work in works:
        fails(RuntimeError, "dlring: ", work.wait)


def blocked_thread(uuid, names):
    """So does a call that another thread is in."""
    numbers = dist.group.WORLD._get_sequence_number_for_group
    before = numbers()
    thread = threading.Thread(target=fails, args=(RuntimeError, "dlring: ", dist.all_reduce, torch.ones(1 << 20)))
    if NAME != "b":
        thread.start()
        while numbers() == before:
            time.sleep(0.001)
    all_of(names, "blocked")
    meet(uuid, names)
    if NAME != "b":
        thread.join()


def from_a_future(uuid, names):
    """On the thread that completes the group's collectives."""
    handles = handles_of(names)
    future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    assert future.then(lambda _: reconfigure(uuid, handles).wait()).wait()
    use(names.index(NAME), len(names))


def groups(uuid, names):
    """New groups are made out of the new communicator, and stay with their members after the next."""
    meet(uuid, names)
    pair = dist.new_group([1, 3])
    for following in None, names[::-1]:
        if following:
            meet(uuid + 1, following)
        if NAME in (names[1], names[3]):
            x = torch.ones(5)
            dist.all_reduce(x, group=pair)
            assert x.eq(2).all()
        dist.barrier()  # the group is made, on all of its members


def death(uuid):
    all_of("abcd", "alive")
    if NAME == "d":
        os.kill(os.getpid(), signal.SIGKILL)
    lost = dist.get_world_size() - 1
    fails(dlaunch.PeerLost, f"rank {lost} ", dist.all_reduce, torch.ones(1 << 20))
    handles = handles_of("abc")
    assert reconfigure(uuid, set(handles)).wait()
    use(sorted(handles).index(dist._get_reconfigure_handle()), 3)


def nobody_comes(names):
    """A member that is dead, as a follower and as the one that leads; calls that do not fit together."""
    dead = rf"{get('handle', 'd').split(':')[1]}"
    if NAME in "ab":
        all_of("ab", "both here")
        fails(RuntimeError, f"Timed out.*rank 2 of 3 has not arrived.* 2 is {dead}",
              reconfigure, 20, handles_of("abd"), 3)
        fails(RuntimeError, r"no communicator: reconfigure\(\) was called and has not succeeded", dist.barrier)
        fails(RuntimeError, f"Timed out.* 0 is {dead}", reconfigure, 21, handles_of("dab"), 1)
        all_of("ab", "timed out")
        fails(RuntimeError, "Timed out.*same uuid", reconfigure, 22 if NAME == "a" else 23, handles_of("ab"), 1)
        fails(ValueError, "the uuid 20 was used", reconfigure, 20, handles_of("ab"), 1)
    if NAME == "c":
        handle = handles_of("e")[0].split(":")
        handle[3] = "0" * len(handle[3])
        get("wrong secret", "e")
        fails(RuntimeError, "secret", reconfigure, 24, [":".join(handle), *handles_of("c")], 20)
        put("refused")
    if NAME == "e":
        # It serves its port from the time when it led.
        put("wrong secret")
        get("refused", "c")
    all_of(names, "all tried")


def strangers(uuid, names):
    """What others send to the port of the one that leads harms nobody."""
    *_, port, address = handles_of(names[:1])[0].split(":")
    sockets = []
    if NAME == names[1]:
        for i in range(60):
            one = socket.create_connection((address, int(port)), timeout=10)
            one.settimeout(10)
            try:
                if i % 3:
                    one.sendall(os.urandom(10 + 300 * i) if i % 2 else b"GET / HTTP/1.1\r\n\r\n")
            except OSError:
                pass  # it was shown the door
            sockets.append(one)
        put("strangers")
    get("strangers", names[1])
    meet(uuid, names)
    for one in sockets:
        one.close()


def held():
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def often(uuid, names):
    """Nothing is left of the communicators before."""
    for i in range(30):
        assert reconfigure(uuid + i, handles_of(names[i % 4:] + names[:i % 4])).wait()
        dist.barrier()
        if i == 9:
            before = held()
    after = held()
    assert after[0] <= before[0] + 2 and after[1] <= before[1] + 2, (before, after)


def raise_in_thread(args):
    traceback.print_exception(args.exc_type, args.exc_value, args.exc_traceback)
    os._exit(1)


def main():
    threading.excepthook = raise_in_thread
    dist.init_process_group("dlring", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True,
                            timeout=timedelta(seconds=PATIENCE))
    before_the_first()
    if NAME != "e":
        meet(2, "abcd")
        work_under_way(3, "dcba")
        from_a_future(4, "badc")
        blocked_thread(9, "cabd")
        groups(5, "dcba")
        death(7)
    all_of("abce", "together")
    meet(8, "eabc")
    nobody_comes("abce")
    strangers(10, "aebc")
    often(100, "abce")
    dist.barrier()
    dist.destroy_process_group()
    print(NAME, "is right")


main()
