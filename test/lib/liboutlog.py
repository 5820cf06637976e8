"""liboutlog.so from Python, by ctypes: for tests of the library's own contract.

    with Log(url) as log:
        done = log.append_now(event("order/o-1", id=some_uuid))
        log.resolve(done[0].id)

The structs repeat include/outlog.h. Errors are raised as `Refused`, with the stable code's name.
"""
import ctypes as c
import pathlib

from lib.cli import build_dir


class Err(c.Structure):
    _fields_ = [
        ("code", c.c_int),
        ("message", c.c_char * 480),
        ("pointer", c.c_char * 160),
        ("index", c.c_int),
        ("expected", c.c_int64),
        ("actual", c.c_int64),
    ]


class NewEvent(c.Structure):
    _fields_ = [
        ("org_id", c.c_char_p),
        ("is_infrastructure", c.c_bool),
        ("aggregate_type", c.c_char_p),
        ("aggregate_id", c.c_char_p),
        ("event_type", c.c_char_p),
        ("event_version", c.c_int),
        ("payload", c.c_char_p),
        ("metadata", c.c_char_p),
        ("id", c.c_char_p),
        ("actor_type", c.c_char_p),
        ("actor_id", c.c_char_p),
        ("request_id", c.c_char_p),
        ("correlation_id", c.c_char_p),
        ("causation_id", c.c_char_p),
        ("idempotency_key", c.c_char_p),
        ("app_id", c.c_char_p),
        ("env_id", c.c_char_p),
        ("visibility", c.c_char_p),
        ("expected_seq", c.POINTER(c.c_int64)),
        ("traceparent", c.c_char_p),
        ("correlation_default", c.c_char_p),
    ]


class Appended(c.Structure):
    _fields_ = [
        ("event_id", c.c_int64),
        ("raw_id", c.c_char * 37),
        ("aggregate_seq", c.c_int64),
        ("occurred_at", c.c_int64),
        ("correlation_id", c.c_char * 256),
        ("duplicate", c.c_bool),
    ]

    @property
    def id(self):
        return self.raw_id.decode()


class Event(c.Structure):
    _fields_ = [
        ("event_id", c.c_int64),
        ("raw_id", c.c_char * 37),
        ("causation_id", c.c_char * 37),
        ("occurred_at", c.c_int64),
        ("org_id", c.c_char_p),
        ("aggregate_type", c.c_char_p),
        ("aggregate_id", c.c_char_p),
        ("aggregate_seq", c.c_int64),
        ("event_type", c.c_char_p),
        ("event_version", c.c_int),
        ("actor_type", c.c_char_p),
        ("actor_id", c.c_char_p),
        ("request_id", c.c_char_p),
        ("idempotency_key", c.c_char_p),
        ("correlation_id", c.c_char_p),
        ("app_id", c.c_char_p),
        ("env_id", c.c_char_p),
        ("visibility", c.c_char_p),
        ("metadata", c.c_char_p),
        ("payload", c.c_char_p),
        ("payload_bytes", c.c_size_t),
        ("depth", c.c_int),
    ]


class Page(c.Structure):
    _fields_ = [
        ("events", c.POINTER(Event)),
        ("count", c.c_size_t),
        ("next_after", c.c_int64),
        ("settled", c.c_int64),
        ("log_id", c.c_char * 37),
        ("memory", c.c_void_p),
    ]


class Filter(c.Structure):
    _fields_ = [
        ("org_id", c.c_char_p),
        ("is_infrastructure", c.c_bool),
        ("event_type", c.c_char_p),
        ("aggregate_type", c.c_char_p),
        ("aggregate_id", c.c_char_p),
        ("correlation_id", c.c_char_p),
        ("app_id", c.c_char_p),
        ("env_id", c.c_char_p),
        ("visibility", c.c_char_p),
        ("since", c.c_int64),
        ("until", c.c_int64),
        ("raw", c.c_bool),
        ("log_id", c.c_char_p),
    ]


class Idempotency(c.Structure):
    _fields_ = [
        ("org_id", c.c_char_p),
        ("actor_id", c.c_char_p),
        ("endpoint", c.c_char_p),
        ("key", c.c_char_p),
        ("request", c.c_char_p),
    ]


class Refused(Exception):
    """A call returned -1. `appended` is what append_now left in `out`."""

    def __init__(self, err, appended=()):
        self.code = _lib().outlog_code_name(err.code).decode()
        self.message = err.message.decode()
        self.index, self.expected, self.actual = err.index, err.expected, err.actual
        self.appended = list(appended)
        super().__init__(f"{self.message} [{self.code}]")


_loaded = None


def _lib():
    global _loaded
    if not _loaded:
        _loaded = c.CDLL(str(pathlib.Path(build_dir()) / "liboutlog.so"))
        _loaded.outlog_code_name.restype = c.c_char_p
        for name in ("close", "rollback", "leave"):
            getattr(_loaded, f"outlog_{name}").restype = None
            getattr(_loaded, f"outlog_{name}").argtypes = [c.c_void_p]
    return _loaded


def event(aggregate="order/o-1", org="acme", type="order.created", payload="{}", **more):
    """An outlog_new_event; `aggregate` is TYPE/ID, and the other fields keep their names."""
    kind, _, name = aggregate.partition("/")
    fields = {
        "org_id": org,
        "is_infrastructure": org is None,
        "aggregate_type": kind,
        "aggregate_id": name,
        "event_type": type,
        "payload": payload,
        **more,
    }
    if more.get("expected_seq") is not None:
        fields["expected_seq"] = c.pointer(c.c_int64(more["expected_seq"]))
    return NewEvent(**{name: value.encode() if isinstance(value, str) else value for name, value in fields.items()})


def _call(name, *args):
    err = Err()
    if getattr(_lib(), f"outlog_{name}")(*args, c.byref(err)) < 0:
        raise Refused(err)


class Tx:
    def __init__(self, pointer):
        self.pointer = pointer

    def append(self, *events):
        out = (Appended * len(events))()
        _call("append_many", self.pointer, (NewEvent * len(events))(*events), c.c_size_t(len(events)), out)
        return list(out)

    def idempotent_begin(self, key, request="{}", org="acme", actor="a", endpoint="pay"):
        self.call = Idempotency(org.encode(), actor.encode(), endpoint.encode(), key.encode(), request.encode())
        response = c.c_char_p()
        _call("idempotent_begin", self.pointer, c.byref(self.call), c.byref(response))
        return response.value.decode() if response.value is not None else None

    def idempotent_end(self, response):
        _call("idempotent_end", self.pointer, c.byref(self.call), response.encode())

    def commit(self):
        pointer, self.pointer = self.pointer, None
        _call("commit", pointer)

    def rollback(self):
        pointer, self.pointer = self.pointer, None
        _lib().outlog_rollback(pointer)


class Log:
    """A handle; calls release Python's lock, so several threads may each use one."""

    def __init__(self, url):
        self.pointer = c.c_void_p()
        _call("open", url.encode(), c.byref(self.pointer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.pointer:
            _lib().outlog_close(self.pointer)
        self.pointer = None

    def begin(self):
        pointer = c.c_void_p()
        _call("begin", self.pointer, c.byref(pointer))
        return Tx(pointer)

    def append_now(self, *events):
        out, err = (Appended * len(events))(), Err()
        if (
            _lib().outlog_append_now(
                self.pointer, (NewEvent * len(events))(*events), c.c_size_t(len(events)), out, c.byref(err)
            )
            < 0
        ):
            raise Refused(err, out)
        return list(out)

    def resolve(self, id):
        """What is stored under this id, or None."""
        stored, out = c.c_bool(), Appended()
        _call("resolve", self.pointer, id.encode(), c.byref(stored), c.byref(out))
        return out if stored.value else None

    def settled(self):
        settled = c.c_int64()
        _call("settled", self.pointer, c.byref(settled))
        return settled.value

    def read(self, after=0, limit=1000, log_id=None):
        """([event_id …], next_after); the log's id is in self.log_id."""
        page, filter = Page(), Filter(log_id=log_id.encode()) if log_id else None
        try:
            _call(
                "read",
                self.pointer,
                c.byref(filter) if filter else None,
                c.c_int64(after),
                c.c_size_t(limit),
                c.byref(page),
            )
            self.log_id = page.log_id.decode()
            return [page.events[i].event_id for i in range(page.count)], page.next_after
        finally:
            _lib().outlog_page_clear(c.byref(page))

    def deliver_session(self, org, key):
        hurried = c.c_int64()
        _call("deliver_session", self.pointer, org.encode(), key.encode(), None, c.byref(hurried))
        return hurried.value
