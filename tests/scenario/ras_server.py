"""Stands in for NCCL's RAS service: serve(report) answers each client of NCCL_RAS_ADDR with report(), as NCCL 2.28 does."""
import os
import socket
import threading


def listen():
    host, port = os.environ["NCCL_RAS_ADDR"].rsplit(":", 1)
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind((socket.gethostbyname(host), int(port)))
    server.listen()
    return server


def answer(client, report):
    with client, client.makefile("r") as lines:
        for line in lines:
            command = line.strip().lower()
            if command.startswith("client protocol "):
                client.sendall(b"SERVER PROTOCOL 2\n")
            elif command in ("status", "verbose status"):
                return client.sendall(report().encode())
            else:
                client.sendall(f"ERROR: Unknown command {line.strip()}\n".encode())


def serve(report):
    server = listen()

    def clients():
        while True:
            answer(server.accept()[0], report)

    threading.Thread(target=clients, daemon=True).start()


def behind(size, rank, pid):
    """The report on a communicator of `size` ranks in which one rank has called 41 collectives, the others 42."""
    return f"""NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1  {size:9}            1  {size:9}  {size:7}

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1  {size:8}  {size:8}  {size:8}   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  {size - 1} ranks have launched up to operation 42
  Rank {rank} has launched up to operation 41 -- GPU {rank} managed by process {pid} on node 127.0.0.1

"""
