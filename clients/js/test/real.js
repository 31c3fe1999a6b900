/**
 * The real server, with the same methods as the stand-in. Its clients come through a proxy, which
 * breaks lines and refuses connections.
 */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** What the tests themselves are told is not for the server. */
const isOfServer = ([name]) => !name.startsWith('STENTOR_')
const env = Object.fromEntries(Object.entries(process.env).filter(isOfServer))

/** The topics of a pattern keep so many messages. */
const history = (pattern, kept) => `[[topics]]\nmatch = "${pattern}"\nhistory = ${kept}\n`

export class RealServer {
  /** For each connection: 'refuse', 'hold' or 'buffer' (no answer), or nothing. */
  fault = () => undefined
  #binary
  #settings
  #process
  #public // Its port.
  #control // Where to publish.
  #sockets = new Set()
  #connections = 0
  #isFrozen = false
  arrivals_ms = [] // When each connection came.
  #proxy = createServer((socket) => this.#accept(socket))

  constructor(binary, pattern = '/short/*', kept = 3, streams = 'retry = "200ms"') {
    this.#binary = binary
    this.#settings = `${history(pattern, kept)}[streams]\n${streams}\n[cors]\norigins = ["*"]\n`
  }

  async start() {
    this.#proxy.listen(0, '127.0.0.1')
    await Promise.all([once(this.#proxy, 'listening'), this.restart()])
    this.url = `http://127.0.0.1:${this.#proxy.address().port}`
    return this
  }

  async stop() {
    this.#proxy.close()
    this.cut()
    await this.#kill()
  }

  /** How many connections there were. */
  asked() {
    return this.#connections
  }

  /** A restart without what was kept, and of another epoch. */
  async restart() {
    await this.#kill()
    this.cut()
    const directory = mkdtempSync(join(tmpdir(), 'stentor-client-'))
    const file = join(directory, 'stentor.toml')
    writeFileSync(file, this.#settings)
    const listeners = ['--listen', '127.0.0.1:0', '--control', '127.0.0.1:0']
    const args = ['serve', '--config', file, '--workers', '1', ...listeners]
    this.#process = spawn(this.#binary, args, { env, stdio: ['ignore', 'ignore', 'pipe'] })
    try {
      await this.#ready()
    } finally {
      rmSync(directory, { recursive: true })
    }
  }

  async #ready() {
    let log = ''
    for await (const text of this.#process.stderr.setEncoding('utf8')) {
      log += text
      if (!log.includes('ready: ')) continue
      this.#public = Number(/public listener at http:\/\/[\d.]+:(\d+)/.exec(log)[1])
      this.#control = `http://${/control listener at ([\d.:]+)/.exec(log)[1]}`
      return
    }
    throw new Error(`The server does not start:\n${log}`)
  }

  async #kill() {
    if (!this.#process) return
    this.#process.kill('SIGKILL')
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      await once(this.#process, 'exit')
    }
  }

  async publish(topic, data, { type = 'application/json' } = {}) {
    const body = /[/+]json(;|$)/.test(type) ? JSON.stringify(data)
      : type.startsWith('text/') ? data : Buffer.from(data.base64, 'base64')
    const answer = await this.#ask('PUT', topic, { body, headers: { 'Content-Type': type } })
    return JSON.parse(answer).id
  }

  async delete(topic) {
    await this.#ask('DELETE', topic)
  }

  async #ask(method, topic, options) {
    const response = await fetch(this.#control + topic, { method, ...options })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${topic}: ${response.status} ${text}`)
    return text
  }

  /** Lets nothing through until it is called again with `false`; the connections stay. */
  freeze(isFrozen = true) {
    for (const socket of this.#sockets) {
      if (isFrozen) socket.pause()
      else socket.resume()
    }
    this.#isFrozen = isFrozen
  }

  /** Resets every connection. */
  cut() {
    for (const socket of this.#sockets) socket.destroy()
  }

  #accept(socket) {
    this.#connections += 1
    this.#track(socket)
    this.arrivals_ms.push(performance.now())
    const fault = this.fault({ kind: 'connection' })
    if (fault === 'refuse') return socket.destroy()
    if (fault) return
    const server = this.#track(connect(this.#public, '127.0.0.1'))
    socket.pipe(server).pipe(socket)
    if (this.#isFrozen) this.freeze()
    socket.on('close', () => server.destroy())
    server.on('close', () => socket.destroy())
  }

  #track(socket) {
    this.#sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => this.#sockets.delete(socket))
    return socket
  }
}
