"""A TCP proxy between a client and a server that can be cut and mended."""
import contextlib
import socket
import threading


class CutProxy:
    def __init__(self, port):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._is_cut = False
        self._ends, self._lock = [], threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def cut(self):
        """Both ends of every connection see it end, in mid-word; nobody can connect until mend()."""
        with self._lock:
            self._is_cut = True
            ends, self._ends = self._ends, []
        for end in ends:
            _end(end)

    def mend(self):
        with self._lock:
            self._is_cut = False

    def close(self):
        self.cut()
        _end(self.listener)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                self.listener.close()
                return
            with self._lock:
                try:
                    if self._is_cut:
                        raise OSError
                    server = socket.create_connection(("127.0.0.1", self.server_port))
                except OSError:
                    client.close()
                    continue
                self._ends += [client, server]
            threading.Thread(target=_carry_both, args=(client, server), daemon=True).start()


def _carry_both(client, server):
    """Until either side ends. Whoever cuts only ends them: they are closed here, where nobody reads them any more."""
    back = threading.Thread(target=_carry, args=(server, client), daemon=True)
    back.start()
    _carry(client, server)
    back.join()
    client.close()
    server.close()


def _carry(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    _end(source)
    _end(target)


def _end(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
