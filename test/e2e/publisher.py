"""Replays a capture of KV events over real ZeroMQ sockets, as an engine would.

It prints "ready EVENTS REPLAY" with the bound endpoints, sends all messages once
somebody has subscribed, then answers replay requests until its standard input
is closed. Message numbers given with --drop are kept for replay and not sent.
"""

import argparse
import struct
import sys
import threading

import zmq


def messages(path):
    """Yields the frames of each message of a capture."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        (frames,) = struct.unpack_from("<I", data, at)
        at += 4
        message = []
        for _ in range(frames):
            (size,) = struct.unpack_from("<I", data, at)
            message.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        yield message


def main():
    args = argparse.ArgumentParser()
    args.add_argument("capture")
    args.add_argument("--drop", default="", help="numbers of messages that are not sent live")
    args.add_argument("--topic-frame", action="store_true", help="replay answers carry the topic")
    args.add_argument("--no-replay", action="store_true", help="replay requests get no answer")
    args.add_argument("--connect", help="endpoint to connect the publisher to, instead of binding one")
    args.add_argument("--topic", help="topic of all messages, instead of the capture's")
    args = args.parse_args()
    drop = {int(n) for n in args.drop.split(",") if n}

    ctx = zmq.Context()
    pub = ctx.socket(zmq.XPUB)
    router = ctx.socket(zmq.ROUTER)
    for s in (pub, router):
        s.setsockopt(zmq.LINGER, 0)
        if s is pub and args.connect:
            s.connect(args.connect)
        else:
            s.bind("tcp://127.0.0.1:*")
    print("ready", *(s.getsockopt(zmq.LAST_ENDPOINT).decode() for s in (pub, router)), flush=True)

    kept = []
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    poller = zmq.Poller()
    poller.register(pub, zmq.POLLIN)
    poller.register(router, zmq.POLLIN)
    while not stop.is_set():
        ready = dict(poller.poll(50))
        if pub in ready and pub.recv()[:1] == b"\x01" and not kept:
            for message in messages(args.capture):
                if args.topic is not None:
                    message[0] = args.topic.encode()
                kept.append(message)
                (number,) = struct.unpack(">Q", message[1])
                if number not in drop:
                    pub.send_multipart(message)
            print("sent", len(kept), flush=True)
        if router in ready:
            request = router.recv_multipart()
            if args.no_replay or len(request) != 3:
                continue
            who, _, start = request
            for topic, number, payload in kept:
                if number >= start:
                    answer = [topic] if args.topic_frame else []
                    router.send_multipart([who, b"", *answer, number, payload])
            answer = [b""] if args.topic_frame else []
            router.send_multipart([who, b"", *answer, b"\xff" * 8, b""])
    ctx.destroy()


if __name__ == "__main__":
    main()
