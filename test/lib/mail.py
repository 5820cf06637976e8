"""A real SMTP server that remembers, and misbehaves on demand."""
import asyncio
import threading

from aiosmtpd.smtp import SMTP


class MailServer:
    """aiosmtpd in a thread. The local part of a recipient says how to behave."""

    def __init__(self, implicit_tls=None, **options):
        self.mails, self.connections, self.released = [], 0, threading.Event()
        self.loop = asyncio.new_event_loop()
        self.options = options
        started = threading.Event()

        def run():
            asyncio.set_event_loop(self.loop)
            self.server = self.loop.run_until_complete(
                self.loop.create_server(self._connect, "127.0.0.1", 0, ssl=implicit_tls)
            )
            self.port = self.server.sockets[0].getsockname()[1]
            started.set()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(60)

    def _connect(self):
        self.connections += 1
        return SMTP(self, hostname="mx.test", loop=self.loop, **self.options)

    async def handle_RCPT(self, server, session, envelope, address, options):
        kind = address.split("@")[0]
        if kind.isdigit():
            return f"{kind} scripted"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        kind = envelope.rcpt_tos[0].split("@")[0]
        self.mails.append(envelope)
        if kind.startswith("data"):
            return f"{kind[4:]} scripted"
        while kind == "hang" and not self.released.is_set():
            await asyncio.sleep(0.02)
        if kind == "cut":
            server.transport.abort()
        return "250 OK taken"

    def end(self):
        self.released.set()

        async def close():
            self.server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(close(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
        self.loop.close()
