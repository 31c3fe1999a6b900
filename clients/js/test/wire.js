/** The behaviours of `hostile.js` behind real sockets. */

import { createHash } from 'node:crypto'
import { createServer } from 'node:http'

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'

export class HostileServer {
  /** When each request came. */
  arrivals_ms = []
  #http
  #sockets = new Set()

  constructor(answer) {
    this.#http = createServer((request, response) => this.#answer(answer, request, response))
    this.#http.on('upgrade', (request, socket) => this.#upgrade(answer, request, socket))
    this.#http.on('connection', (socket) => {
      this.#sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => this.#sockets.delete(socket))
    })
  }

  async start() {
    await new Promise((resolve) => this.#http.listen(0, '127.0.0.1', resolve))
    this.url = `http://127.0.0.1:${this.#http.address().port}`
    return this
  }

  async stop() {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#http.close(resolve))
  }

  #request(request, kind) {
    const { searchParams } = new URL(request.url, 'http://localhost')
    const [wait, since] = ['wait', 'since'].map((name) => searchParams.get(name) ?? undefined)
    this.arrivals_ms.push(performance.now())
    return { kind, wait, since, topics: searchParams.getAll('topic') }
  }

  #answer(answer, request, response) {
    const cors = { 'Access-Control-Allow-Origin': '*', 'Access-Control-Allow-Headers': '*' }
    if (request.method === 'OPTIONS') return response.writeHead(204, cors).end()
    const kind = request.headers.accept === 'text/event-stream' ? 'sse' : 'poll'
    const timers = []
    const line = {
      head: (status, headers) => {
        response.writeHead(status, { ...cors, ...headers })
        if (status !== 204) response.flushHeaders()
      },
      write: (text) => response.write(text),
      end: (text) => response.end(text),
      reset: () => request.socket.resetAndDestroy(),
      later: (ms, f) => timers.push(setTimeout(f, ms)),
      get isGone() { return response.destroyed || response.writableEnded },
    }
    response.on('close', () => timers.forEach(clearTimeout))
    answer({ ...this.#request(request, kind), line })
  }

  /** As much of RFC 6455 as short frames of text need. */
  #upgrade(answer, request, socket) {
    const key = request.headers['sec-websocket-key']
    const accept = createHash('sha1').update(key + GUID).digest('base64')
    const protocol = request.headers['sec-websocket-protocol']?.split(',')[0]
    const line = {
      open: () => socket.write([
        'HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade',
        `Sec-WebSocket-Accept: ${accept}`, protocol && `Sec-WebSocket-Protocol: ${protocol}`,
      ].filter(Boolean).join('\r\n') + '\r\n\r\n'),
      send: (data) => {
        const body = Buffer.from(typeof data === 'string' ? data : JSON.stringify(data))
        socket.write(Buffer.concat([frame(1, body.length), body]))
      },
      close: (code) => {
        if (code === 1006) return socket.destroy()
        socket.end(Buffer.concat([frame(8, 2), Buffer.from([code >> 8, code & 255])]))
      },
      reset: () => socket.resetAndDestroy(),
      later: (ms, f) => setTimeout(f, ms).unref(),
      get isGone() { return socket.destroyed },
    }
    answer({ ...this.#request(request, 'websocket'), line })
  }
}

function frame(opcode, length) {
  if (length < 126) return Buffer.from([0x80 | opcode, length])
  return Buffer.from([0x80 | opcode, 126, length >> 8, length & 255])
}
