"""A process that appends to a store until it is killed: `python3 test/lib/appender.py URL NAME`.

It tells each command before it is sent (`try ID …`) and after it was acknowledged (`ok ID …`), each in
one write, so that a parent knows what a killed one was promised.
"""
import os
import pathlib
import sys
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from lib.liboutlog import Log, Refused, event  # noqa: E402


def main(url, name):
    with Log(url) as log:
        for n in range(1, 1000000):
            ids = [str(uuid.uuid4()) for _ in range(1 + n % 3)]
            events = [
                event(
                    f"own/{name}" if i == 0 else f"shared/s-{(n + i) % 5}",
                    id=id,
                    correlation_id=ids[0],
                    payload='{"size":%d}' % len(ids),
                )
                for i, id in enumerate(ids)
            ]
            _say("try", ids)
            tx = None
            try:
                if n % 2:
                    log.append_now(*events)
                else:
                    tx = log.begin()
                    tx.append(*events)
                    tx.commit()
            except Refused as refused:
                if tx:
                    tx.rollback()
                _say("refused " + refused.code, ids)
                if refused.code not in ("unavailable", "outcome_unknown"):
                    raise
            else:
                _say("ok", ids)


def _say(word, ids):
    os.write(1, f"{word} {' '.join(ids)}\n".encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
