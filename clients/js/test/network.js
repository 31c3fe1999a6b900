/**
 * A clock and a network in memory. Ten minutes of a client pass in a moment, and the same each
 * time: a test sees when each request was made, and decides what becomes of its line.
 *
 * A behaviour is a function of a request: `answer({ kind, topics, since, wait, line, number })`.
 * The line has `head`, `write`, `end`, `reset` and `later`; that of a WebSocket `open`, `send`,
 * `close` and `heard`. `hostile.js` has a set of them, which `wire.js` puts behind real sockets.
 */

const { setTimeout: realTimeout } = globalThis
const LONGEST_MS = 2 ** 31 - 1

class Clock {
  now_ms = 1_000_000
  #timers = new Set()

  set = (f, ms, ...rest) => {
    // As browsers and Node do.
    const wait_ms = ms > 0 && ms <= LONGEST_MS ? ms : 1
    const timer = { at_ms: this.now_ms + wait_ms, run: () => f(...rest), unref() {}, refresh() {} }
    this.#timers.add(timer)
    return timer
  }

  clear = (timer) => this.#timers.delete(timer)

  /** The deadlines that are armed, in milliseconds from now. */
  get waits() {
    return [...this.#timers].map(({ at_ms }) => at_ms - this.now_ms)
  }

  /** Lets so much time pass, and all happen that is due in it. */
  async pass(ms) {
    const end_ms = this.now_ms + ms
    for (;;) {
      await settled()
      const due = [...this.#timers].filter(({ at_ms }) => at_ms <= end_ms)
      if (!due.length) break
      const next = due.reduce((a, b) => (b.at_ms < a.at_ms ? b : a))
      this.#timers.delete(next)
      this.now_ms = Math.max(this.now_ms, next.at_ms)
      next.run()
    }
    this.now_ms = end_ms
    await settled()
  }
}

/** Streams and promises take some rounds until all has been heard. */
async function settled() {
  for (let round = 0; round < 6; round++) await new Promise(setImmediate)
}

/** One request and its line. */
class Line {
  #controller
  #timers = []

  constructor(network, request, { signal, resolve, reject }) {
    Object.assign(this, { network, request, resolve, reject })
    const abort = () => {
      this.gone()
      reject(signal.reason)
      this.#fail(signal.reason)
    }
    this.gone = () => {
      this.isGone = true
      signal.removeEventListener('abort', abort)
      for (const timer of this.#timers) clearTimeout(timer)
    }
    signal.addEventListener('abort', abort)
  }

  /** Does it then, if the line is still there. */
  later(ms, f) {
    this.#timers.push(setTimeout(f, ms))
  }

  /** What is sent on a dead line is lost, and so is all that follows it. */
  get isLost() {
    this.wasDead ||= this.network.isDead
    return this.wasDead || this.isGone
  }

  head(status, headers = {}) {
    if (this.isLost) return
    const start = (controller) => { this.#controller = controller }
    const isBare = status === 204 || status === 304
    const body = isBare ? null : new ReadableStream({ start })
    this.resolve(new Response(body, { status, headers }))
  }

  write(text) {
    if (!this.isLost) this.#controller?.enqueue(new TextEncoder().encode(text))
  }

  end(text = '') {
    if (this.isLost) return
    if (text) this.write(text)
    this.gone()
    this.#controller?.close()
  }

  reset() {
    if (this.isLost) return
    this.gone()
    const error = new TypeError('fetch failed')
    this.reject(error)
    this.#fail(error)
  }

  #fail(error) {
    try {
      this.#controller?.error(error)
    } catch {} // It has ended.
  }
}

export class Network {
  clock = new Clock()
  /** `{ kind, at_ms, topics, since, wait }` of each request. */
  requests = []
  answer = () => {}
  url = 'http://stand.in'
  isDead = false // Nothing gets through.
  #waiting = new Set()

  /** Takes the place of the runtime's clock and network. */
  install() {
    const { clock } = this
    globalThis.setTimeout = clock.set
    globalThis.clearTimeout = clock.clear
    performance.now = () => clock.now_ms
    globalThis.fetch = (url, options) => this.#fetch(url, options)
    globalThis.WebSocket = this.#webSocket()
    return this
  }

  #record(url, kind, headers) {
    const { searchParams } = new URL(url)
    const [wait, since] = ['wait', 'since'].map((name) => searchParams.get(name) ?? undefined)
    const token = headers?.Authorization
    const topics = searchParams.getAll('topic')
    const number = this.requests.length
    const request = { kind, topics, since, wait, token, number, at_ms: this.clock.now_ms }
    this.requests.push(request)
    return request
  }

  /** Reaches the server, at once or by one of the retransmissions of TCP. */
  #reach(request, go, isGone) {
    const sent_s = [0, 1, 3, 7, 15, 31]
    const send = (i) => {
      if (isGone()) return
      if (!this.isDead) return go()
      if (i < sent_s.length) this.clock.set(() => send(i + 1), 1000 * (sent_s[i + 1] - sent_s[i]))
    }
    send(0)
  }

  #fetch(url, { headers, signal }) {
    const kind = headers.Accept === 'text/event-stream' ? 'sse' : 'poll'
    const request = this.#record(url, kind, headers)
    return new Promise((resolve, reject) => {
      const line = new Line(this, request, { signal, resolve, reject })
      this.#reach(request, () => this.answer({ ...request, line }), () => line.isGone)
    })
  }

  #webSocket() {
    const network = this
    return class {
      constructor(url, protocol) {
        const request = network.#record(url, 'websocket')
        const socket = this
        let state = 'connecting'
        const close = (code) => {
          if (state === 'closed') return
          state = 'closed'
          setImmediate(() => socket.onclose?.({ code }))
        }
        const line = {
          network, request,
          get isGone() { return state === 'closed' },
          open: () => {
            if (state !== 'connecting') return
            state = 'open'
            socket.onopen?.({})
          },
          send: (data) => {
            if (state !== 'open' || network.isDead) return
            const text = typeof data === 'string' ? data : JSON.stringify(data)
            setImmediate(() => socket.onmessage?.({ data: text }))
          },
          close,
          reset: () => close(1006),
          end: () => close(1000),
        }
        this.send = (text) => {
          if (state === 'open' && !network.isDead) line.heard?.(JSON.parse(text))
        }
        this.close = () => { if (!network.isDead) close(1000); else state = 'closed' }
        const go = () => network.answer({ ...request, protocol, line })
        setImmediate(() => network.#reach(request, go, () => state === 'closed'))
      }
    }
  }

  /** The most requests that were made within any time as long as this. */
  most(span_ms) {
    const times = this.requests.map(({ at_ms }) => at_ms)
    return Math.max(0, ...times.map((from_ms, i) => {
      const after = times.findIndex((at_ms, j) => j > i && at_ms > from_ms + span_ms)
      return (after < 0 ? times.length : after) - i
    }))
  }
}

/** Waits for what real time brings, such as another process. */
export const real = (ms) => new Promise((resolve) => realTimeout(resolve, ms))
