// webhook_receiver.mjs: webhooks as an ordinary application handles them: Node's HTTP server reads the body,
// parses it and answers 204. A path that begins with /hang gets no response. Prints its port.
import { createServer } from 'node:http';

const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
        if (request.url.startsWith('/hang')) return;
        JSON.parse(Buffer.concat(parts).toString());
        response.writeHead(204);
        response.end();
    });
});
server.keepAliveTimeout = 60000;
server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })));
process.on('SIGTERM', () => process.exit(0));
