"""A client of /v1/sessions/{key}/socket, and an agent that answers by HTTP."""
import http.server
import json
import socket
import threading
import time

import websocket  # Debian's python3-websocket


class Chat:
    """One socket of a session. What it was sent is in `frames`, in order."""

    def __init__(self, server, key, query="", timeout=60, origin=None, room=None, **headers):
        self.socket = websocket.create_connection(
            f"ws://127.0.0.1:{server.port}/v1/sessions/{key}/socket{query}",
            timeout=timeout,
            origin=origin,
            sockopt=((socket.SOL_SOCKET, socket.SO_RCVBUF, room),) if room else (),
            header=[f"{name}: {value}" for name, value in headers.items()],
        )
        self.frames, self.timeout = [], timeout

    def send(self, frame):
        self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    def say(self, request_id, text):
        self.send({"type": "user_message", "requestId": request_id, "text": text})

    def ack(self, effect_id):
        self.send({"type": "ack", "effect_id": effect_id})

    def next(self, *types):
        """The next frame, or the next of these types."""
        until = time.monotonic() + self.timeout
        while True:
            opcode, text = self.socket.recv_data(control_frame=True)
            if opcode == websocket.ABNF.OPCODE_CLOSE:
                raise websocket.WebSocketConnectionClosedException("closed")
            if opcode != websocket.ABNF.OPCODE_TEXT:  # pings must not make us wait for ever
                assert time.monotonic() < until, f"none of {types} came"
                continue
            frame = json.loads(text)
            self.frames.append(frame)
            if not types or frame["type"] in types:
                return frame

    def silent(self, seconds=0.5):
        """Nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            frame = self.socket.recv()
        except websocket.WebSocketTimeoutException:
            return True
        raise AssertionError(f"came: {frame}")

    def close(self):
        self.socket.close()


class Agent(http.server.ThreadingHTTPServer):
    """POST / answers with `words(question)`: a list of tokens; a number waits so many seconds; None cuts the
    connection. As NDJSON that ends with the connection, with style="chunked" in chunks, so that its end is seen, or with
    style="openai" as OpenAI's deltas."""

    daemon_threads = True
    request_queue_size = 128

    @staticmethod
    def echo(question):
        return ["you ", "said ", question["text"], {"checkpoint": {"seq": question["seq"]}}]

    def __init__(self, words, style="ndjson"):
        super().__init__(("127.0.0.1", 0), Mouth)
        self.words, self.style = words, style
        self.questions = []
        self.busy, self.most_busy, self.lock = {}, 0, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Mouth(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        agent = self.server
        question = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with agent.lock:
            agent.questions.append(question)
            key = question["session_key"]
            agent.busy[key] = agent.busy.get(key, 0) + 1
            agent.most_busy = max(agent.most_busy, agent.busy[key])
        try:
            self.speak(agent, question)
        finally:
            with agent.lock:
                agent.busy[key] -= 1

    def speak(self, agent, question):
        words = agent.words(question)
        if isinstance(words, int):
            self.send_error(words)
            return
        stream = agent.style == "openai"
        chunked = agent.style == "chunked"
        self.protocol_version = "HTTP/1.1" if chunked else "HTTP/1.0"
        self.send_response(200)
        if chunked:
            self.send_header("transfer-encoding", "chunked")
        self.send_header("content-type", "text/event-stream" if stream else "application/x-ndjson")
        self.send_header("connection", "close")
        self.end_headers()
        for word in words:
            if word is None:
                self.wfile.flush()
                self.connection.shutdown(2)
                return
            if isinstance(word, (int, float)):
                time.sleep(word)
                continue
            if isinstance(word, dict):
                line = json.dumps(word)
            else:
                line = json.dumps({"choices": [{"delta": {"content": word}}]} if stream else {"token": word})
            data = (f"data: {line}\n\n" if stream else f"{line}\n").encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
            self.wfile.flush()
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        if stream:
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass
