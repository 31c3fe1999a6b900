/**
 * A server of the contract, small enough to be believed: one order of messages, a history for each
 * topic, SSE and long-poll over real sockets, and a WebSocket that needs no network. What a test
 * wants to go wrong it says with `fault`.
 */

import { createServer } from 'node:http'

export class Server {
  epoch = '5f3a09c1'
  seq = 0n
  kept = 32 // Messages in the history of a topic.
  topics = new Map() // name → { messages, trimmed }
  streams = new Set() // { wants(topic), give(item), end() }
  requests = [] // What was asked, one { kind, topics, since, wait, mode } for each request.
  commands = [] // What came over WebSockets.
  tokens // The good ones, if it asks for any.
  retry_ms = 2_417 // What streams are told.
  retryAfter_s // What refusals say.
  heartbeat_s = 15
  refusal = () => undefined // Of a list of topics: the code, detail and status of a problem.
  /** For each request: 'refuse', 'defer', 'hold' (no answer), 'buffer' (no body) or nothing. */
  fault = () => undefined

  async start() {
    this.http = createServer((request, response) => this.#answer(request, response))
    await new Promise((resolve) => this.http.listen(0, '127.0.0.1', resolve))
    this.url = `http://127.0.0.1:${this.http.address().port}`
    return this
  }

  async stop() {
    this.cut()
    this.http.closeAllConnections()
    await new Promise((resolve) => this.http.close(resolve))
  }

  id(seq = this.seq) {
    return `${this.epoch}-${seq}`
  }

  publish(topic, data, { type = 'application/json', event } = {}) {
    this.seq += 1n
    const isBytes = data?.base64 !== undefined && !/[/+]json(;|$)/.test(type)
    const content = isBytes ? { data_base64: data.base64 } : { data }
    this.#add({ topic, id: this.id(), type, ...content, event })
    return this.id()
  }

  delete(topic) {
    this.seq += 1n
    this.#add({ topic, id: this.id(), deleted: true })
    return this.id()
  }

  /** A restart without what was kept. */
  restart(epoch, seq = 0n) {
    Object.assign(this, { epoch, seq })
    this.topics.clear()
    this.cut()
  }

  /** Takes the tokens away that there were, and ends what they had let in. */
  expire(tokens) {
    this.tokens = new Set(tokens)
    for (const stream of [...this.streams]) stream.expire()
  }

  /** How many requests there were. */
  asked() {
    return this.requests.length
  }

  /** Resets every stream. */
  cut() {
    for (const stream of [...this.streams]) stream.end()
  }

  #add(item) {
    const { topic } = item
    const kept = this.topics.get(topic) ?? { messages: [], trimmed: 0n }
    this.topics.set(topic, kept)
    kept.messages.push({ seq: this.seq, item })
    if (kept.messages.length > this.kept) kept.trimmed = kept.messages.shift().seq
    for (const stream of this.streams) if (stream.wants(topic)) stream.give(item)
  }

  /** What a reader with this cursor is sent at once. */
  due(patterns, since, mode) {
    const meant = [...this.topics].filter(([topic]) => wants(patterns, topic)).map(([, t]) => t)
    const current = () => meant.map((t) => t.messages.at(-1)).filter(({ item }) => !item.deleted)
    const sorted = (entries) => entries.sort((a, b) => Number(a.seq - b.seq)).map((e) => e.item)
    if (!since) return sorted(current())
    if (since === 'earliest') {
      return sorted(meant.flatMap((t) => t.messages.slice(mode === 'latest' ? -1 : 0)))
    }
    const [, epoch, digits] = /^([0-9a-f]{8})-(\d+)$/.exec(since) ?? []
    const reason = !epoch ? 'cursor_invalid'
      : epoch !== this.epoch ? 'epoch_changed'
      : BigInt(digits) > this.seq ? 'cursor_ahead'
      : this.isShort && BigInt(digits) < this.seq ? 'memory_pressure' : undefined
    if (reason) {
      const gap = { reason, ...epoch && { since }, resume: 'values' }
      return [{ gap }, ...sorted(current())]
    }
    const seq = BigInt(digits)
    const trimmed = { reason: 'history_trimmed', since, resume: 'history' }
    const gap = meant.some((t) => t.trimmed > seq) ? [{ gap: trimmed }] : []
    const missed = meant.flatMap((t) => t.messages.filter((m) => m.seq > seq)
      .slice(mode === 'latest' ? -1 : 0))
    return [...gap, ...sorted(missed)]
  }

  #answer(request, response) {
    const url = new URL(request.url, this.url)
    const get = (name) => url.searchParams.get(name) ?? undefined
    const topics = url.searchParams.getAll('topic')
    const kind = request.headers.accept === 'text/event-stream' ? 'sse' : 'poll'
    const token = request.headers.authorization?.replace('Bearer ', '')
    const asked = { kind, topics, since: get('since'), wait: get('wait'), mode: get('mode'), token }
    this.requests.push(asked)
    const fault = this.fault(asked)
    if (fault === 'hold') return
    if (this.tokens && !this.tokens.has(token)) {
      return problem(response, EXPIRED)
    }
    if (fault === 'refuse') {
      const headers = this.retryAfter_s ? { 'Retry-After': this.retryAfter_s } : {}
      return response.writeHead(503, headers).end('Overloaded.\n')
    }
    if (fault === 'defer') {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' })
      return response.end('retry: 7000\n: Stentor is away.\n')
    }
    if (url.pathname !== '/-/events') return response.writeHead(404).end('No such page.\n')
    const isInvalid = kind === 'poll' && asked.since && !/^(earliest|\w{8}-\d+)$/.test(asked.since)
    const refusal = isInvalid ? INVALID : this.refusal(topics)
    if (refusal) return problem(response, refusal)
    if (kind === 'sse') this.#stream(response, asked, fault)
    else this.#poll(response, asked)
  }

  #stream(response, { topics, since, mode }, fault) {
    const headers = { 'Content-Type': 'text/event-stream', 'Stentor-Heartbeat': this.heartbeat_s }
    response.writeHead(200, headers)
    response.flushHeaders()
    if (fault === 'buffer') return
    const stream = {
      wants: (topic) => wants(topics, topic),
      give: (item) => response.write(event(item)),
      end: () => response.destroy(),
      expire: () => this.streams.delete(stream) && response.end(event({ end: { reason: 'token_expired' } })),
      write: (text) => response.write(text),
    }
    response.on('close', () => this.streams.delete(stream))
    response.write(`retry: ${this.retry_ms}\n\n`)
    const due = this.due(topics, since, mode)
    due.forEach(stream.give)
    // Whoever has no cursor that leads on is told one.
    if (!due.some((item) => !item.gap) && (due.length || !since || since === 'earliest')) {
      stream.give({ cursor: this.id() })
    }
    this.streams.add(stream)
  }

  #poll(response, { topics, since, wait, mode }) {
    const end = (items) => {
      this.streams.delete(stream)
      clearTimeout(timer)
      response.writeHead(200, { 'Content-Type': 'application/json' })
      response.end(JSON.stringify({ events: items, cursor: this.id() }))
    }
    const stream = {
      wants: (topic) => wants(topics, topic),
      give: (item) => end([item]),
      end: () => response.destroy(),
      expire: () => {
        this.streams.delete(stream)
        clearTimeout(timer)
        problem(response, EXPIRED)
      },
    }
    const due = this.due(topics, since, mode)
    let timer
    if (due.length || wait === '0') return end(due)
    timer = setTimeout(() => end([]), wait * 1000)
    this.streams.add(stream)
    response.on('close', () => this.streams.delete(stream) && clearTimeout(timer))
  }

  /** The class for `globalThis.WebSocket`: each one is a connection to this server. */
  webSocket() {
    const server = this
    return class {
      constructor(url, protocol) {
        server.requests.push({ kind: 'websocket', url, protocol })
        const fault = server.fault({ kind: 'websocket' })
        const subscribed = new Map()
        this.stream = {
          wants: (topic) => wants([...subscribed.keys()], topic),
          // Bytes on their way: they arrive in order, and not at all if the line breaks.
          give: (item) => setImmediate(() => this.readyState === 1 && this.#hear(item)),
          end: () => this.#closed(1006),
          expire: () => this.#closed(4401, 'token_expired'),
        }
        this.subscribed = subscribed
        this.readyState = 0
        if (fault === 'hold') return
        setImmediate(() => {
          if (this.readyState !== 0) return
          const token = protocol[1]?.replace('stentor.token.', '')
          const isGood = !server.tokens || server.tokens.has(token)
          if (fault || !isGood) return this.#closed(1006)
          this.readyState = 1
          server.streams.add(this.stream)
          this.onopen?.({})
        })
      }

      #hear(item) {
        this.onmessage?.({ data: JSON.stringify(item) })
      }

      #closed(code, reason = '') {
        if (this.readyState === 3) return
        this.readyState = 3
        server.streams.delete(this.stream)
        setImmediate(() => this.onclose?.({ code, reason }))
      }

      close() {
        this.#closed(1000)
      }

      send(text) {
        if (this.readyState === 0) throw new Error('not open yet')
        if (this.readyState === 3) return // As browsers do.
        const { id, subscribe = [], unsubscribe = [], since } = JSON.parse(text)
        server.commands.push(JSON.parse(text))
        const isInvalid = since && !/^(earliest|\w{8}-\d+)$/.test(since)
        const refusal = isInvalid ? INVALID : subscribe.length && server.refusal(subscribe)
        if (refusal) return this.stream.give({ error: { id, ...refusal } })
        for (const pattern of unsubscribe) this.subscribed.delete(pattern)
        const before = [...this.subscribed.keys()]
        for (const pattern of subscribe) this.subscribed.set(pattern)
        // What is read by another name is not sent again.
        const isNews = (item) => item.gap || !wants(before, item.topic)
        server.due(subscribe, since).filter(isNews).forEach(this.stream.give)
        this.stream.give({ ok: subscribe.length ? { id, cursor: server.id() } : { id } })
      }
    }
  }
}

const EXPIRED = { code: 'token_expired', status: 401, detail: 'The token has expired.' }
const INVALID = { code: 'cursor_invalid', status: 400, detail: 'since must be an id.' }

function problem(response, { code, status, detail }) {
  const headers = { 'Content-Type': 'application/problem+json', 'Stentor-Error': code }
  response.writeHead(status, headers).end(JSON.stringify({ code, status, detail }))
}

/** An item as an event of SSE; JSON over several lines, as a publisher may have written it. */
function event(item) {
  const id = item.id ?? item.cursor
  const name = 'data' in item || 'data_base64' in item ? undefined : 'stentor'
  const lines = JSON.stringify(item, null, 1).split('\n')
  const field = (name, value) => (value ? `${name}: ${value}\n` : '')
  return field('id', id) + field('event', name) + lines.map((l) => field('data', l)).join('') + '\n'
}

/** By regular expression, so that it is another way than the client's. */
function wants(patterns, topic) {
  return patterns.some((pattern) => {
    const literal = pattern.replace(/[.+?^${}()|[\]\\]/g, '\\$&')
    const source = literal.replace(/\/\*\*$/, '/.+').replace(/\/\*(?=\/|$)/g, '/[^/]+')
    return new RegExp(`^${source}$`).test(topic)
  })
}
