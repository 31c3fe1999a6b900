/**
 * Many live values over one connection. Each topic or pattern is a reader with a cursor, the id up
 * to which it has seen all.
 *
 * SSE is read with fetch: an EventSource hides named events, heartbeats and the server's reasons.
 */

const ANSWER_MS = 10_000
const WAIT_S = 25
const WAKES = ['online', 'visibilitychange']
const SILENT = new Error('The server does not answer.')

let page

/** All on the page's own server share one connection. */
export const watch = (...watched) => (page ??= connect()).watch(...watched)

export const connect = (server, options) => new Connection(server, options)

class Connection {
  #url
  #auto
  #renew // Gets a token.
  #token
  #wasHeard // In this attempt.
  #transport
  #state
  #readers = new Map() // By topic or pattern: { since, floor, last, held, watchers }.
  #cursor // Of all readers.
  #attempt // While there are readers.
  #alarm
  #settling
  #wake
  #subscribe // While a WebSocket is open.
  #streamed = false
  #failures = 0
  #retry_ms = 2_000

  constructor(server = '', { transport = 'auto', since, mode, token } = {}) {
    try {
      this.#url = new URL(server.replace(/\/$/, '') + '/-/events', globalThis.location?.href)
    } catch {} // Refused below.
    if (!/^http/.test(this.#url?.protocol)) {
      throw new TypeError(`No address: '${server}'. Outside of a page connect('http://HOST:PORT').`)
    }
    if (transport === 'websocket' && !globalThis.WebSocket) {
      throw new TypeError('There is no WebSocket here (in Node from 22 on): use another transport.')
    }
    if (mode) this.#url.searchParams.set('mode', mode)
    this.#auto = transport === 'auto'
    this.#transport = this.#auto ? 'sse' : transport
    this.#cursor = since
    this.#renew = typeof token === 'function' ? token : () => token
    this.#show('connecting')
  }

  watch(topic, callback, handlers) {
    let reader = this.#readers.get(topic)
    if (!reader) {
      const since = this.#attempt ? undefined : this.#cursor
      reader = { since, last: new Map(), watchers: new Set() }
      this.#readers.set(topic, reader)
      this.#change()
    }
    // Async: what a callback throws is reported, and stops nobody else.
    let ready = false
    const all = { ...handlers, callback }
    const hear = async (name, ...news) => {
      if (ready && reader.watchers.has(hear)) all[name]?.(...news)
    }
    reader.watchers.add(hear)
    queueMicrotask(() => {
      ready = true
      hear('onState', this.#state)
      for (const message of reader.last.values()) hear('callback', message.data, message)
    })
    return () => {
      if (!reader.watchers.delete(hear) || reader.watchers.size) return
      this.#readers.delete(topic)
      this.#change()
    }
  }

  close() {
    this.#show('closed')
    for (const { watchers } of this.#readers.values()) watchers.clear()
    this.#readers.clear()
    this.#change()
  }

  /** Many changes in a row make one connection. */
  #change() {
    this.#settling ??= setTimeout(() => {
      this.#settling = undefined
      const any = this.#readers.size
      if (!this.#attempt) this.#run()
      else if (any && this.#subscribe) this.#subscribe()
      else this.#attempt.abort(null) // No problem, only another list.
      if (!any) this.#wake?.()
    }, 5)
  }

  async #run() {
    while (this.#readers.size) {
      const attempt = (this.#attempt = new AbortController())
      const { signal } = attempt
      const failed = (error) => (signal.aborted ? signal.reason : error)
      const had = this.#token
      this.#wasHeard = false
      const problem = await this.#connect(signal).catch(failed)
      clearTimeout(this.#alarm)
      attempt.abort()
      // One that has served is renewed at once.
      const hasServed = had !== undefined && this.#token === undefined && this.#wasHeard
      if (problem && !hasServed) await this.#recover(problem)
    }
    this.#attempt = this.#cursor = undefined
  }

  async #connect(signal) {
    this.#token ??= await this.#renew()
    if (this.#transport === 'websocket') return this.#websocket(signal)
    const readers = new Map(this.#readers)
    await this.#catchUp(signal, readers)
    if (this.#transport === 'sse') return this.#stream(signal, readers)
    const wait = this.#state.state === 'open' ? WAIT_S : 0
    const items = await this.#ask(signal, readers, this.#cursor, wait)
    for (const item of items) this.#take(item, readers)
    this.#seen(items.cursor, readers)
  }

  /** Waits briefly, for the server may be back soon; `auto` may try the other way. */
  async #recover(problem) {
    const cap_ms = Math.max(4_000, this.#retry_ms, problem.cap_ms || 0)
    const most = Math.min(cap_ms, this.#retry_ms * 2 ** this.#failures++)
    if (this.#auto) {
      const hopeless = problem === SILENT || (!this.#streamed && this.#failures % 3 === 0)
      this.#transport = this.#transport === 'sse' && hopeless ? 'poll' : 'sse'
    }
    this.#show('waiting', problem.message)
    let wake, timer
    await new Promise((resolve) => {
      this.#wake = resolve
      wake = () => globalThis.document?.visibilityState === 'hidden' || resolve()
      for (const event of WAKES) globalThis.addEventListener?.(event, wake)
      timer = setTimeout(resolve, most * (0.5 + Math.random() / 2))
    })
    clearTimeout(timer)
    for (const event of WAKES) globalThis.removeEventListener?.(event, wake)
  }

  /** Gives up unless something is heard in time. */
  #expect(ms, problem = SILENT) {
    clearTimeout(this.#alarm)
    this.#alarm = setTimeout(() => this.#attempt.abort(problem), ms)
  }

  #heard() {
    clearTimeout(this.#alarm)
    this.#wasHeard = true
    this.#failures = 0
    if (this.#state.state !== 'open') this.#show('open')
  }

  #show(state, reason) {
    this.#state = { state, transport: this.#transport, reason }
    tell(this.#readers, 'onState', this.#state)
  }

  /** With `wait` a long-poll's items, else a stream's text. */
  async #ask(signal, readers, since, wait) {
    const isPoll = wait !== undefined
    this.#expect(ANSWER_MS + (isPoll && wait * 1000))
    const url = new URL(this.#url)
    for (const topic of readers.keys()) url.searchParams.append('topic', topic)
    if (since) url.searchParams.set('since', since)
    if (isPoll) url.searchParams.set('wait', wait)
    const headers = { Accept: isPoll ? 'application/json' : 'text/event-stream' }
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`
    const response = await fetch(url, { headers, cache: 'no-store', signal })
    if (response.status === 401) this.#token = undefined
    if (!response.ok) {
      const problem = new Error(`${response.status} ${await response.text()}`)
      const after_s = response.status < 500 ? 30 : response.headers.get('retry-after')
      problem.cap_ms = 1000 * after_s
      throw problem
    }
    if (!isPoll) return response.body.pipeThrough(new TextDecoderStream()).getReader()
    const items = response.status === 204 ? [] : await response.json()
    items.cursor = response.headers.get('etag')?.slice(1, -1)
    this.#heard()
    return items
  }

  /** Brings new readers to the others' cursor: a stream from there hides their older values. */
  async #catchUp(signal, readers) {
    const isBehind = ({ since }) => !since || older(since, this.#cursor)
    const behind = new Map([...readers].filter(([, reader]) => isBehind(reader)))
    if (!this.#cursor || !behind.size) return
    // Told when all is there: a part must not begin anew.
    const items = []
    let since
    do {
      const more = await this.#ask(signal, behind, since, 0)
      items.push(...more)
      since = more.cursor
    } while (older(since, this.#cursor))
    for (const item of items) this.#take(item, behind)
    for (const reader of behind.values()) if (isBehind(reader)) reader.since = this.#cursor
  }

  async #stream(signal, readers) {
    const chunks = await this.#ask(signal, readers, this.#cursor)
    let rest = ''
    let data = []
    let id
    let quiet_ms = 0
    for (;;) {
      const asked_ms = performance.now()
      const { done, value } = await chunks.read()
      if (done) throw new Error('The stream has ended.')
      this.#streamed = true
      const lines = value.split('\n')
      lines[0] = rest + lines[0]
      rest = lines.pop()
      // Only a reader that is deferred gets a comment with words.
      const reason = lines.find((line) => line.startsWith(': '))
      if (!reason) this.#heard()
      for (const line of lines) {
        if (line.startsWith('data: ')) data.push(line.slice(6))
        if (line.startsWith('retry: ')) this.#retry_ms = +line.slice(7)
        // Heartbeats tell how long this server may be silent.
        if (line === ':') quiet_ms = Math.max(30_000, 3 * (performance.now() - asked_ms))
        if (line.startsWith('id: ')) id = line.slice(4)
        if (line) continue
        if (data.length) this.#take(JSON.parse(data.join('\n')), readers)
        if (id) this.#seen(id, readers)
        data = []
        id = undefined
      }
      if (reason) throw new Error(reason.slice(2))
      if (quiet_ms) this.#expect(quiet_ms, new Error('The line is dead.'))
    }
  }

  #websocket(signal) {
    this.#expect(ANSWER_MS)
    const own = 'stentor.v1'
    const protocols = this.#token ? [own, `stentor.token.${this.#token}`] : own
    const socket = new WebSocket(this.#url.href.replace('http', 'ws'), protocols)
    let opened
    const send = (command) => socket.send(JSON.stringify(command))
    let known = new Map()
    const joining = new Map() // What each command but the first has added, until it is obeyed.
    let commands = 0
    return new Promise((_, fail) => {
      signal.onabort = () => fail(signal.reason)
      socket.onclose = ({ code }) => {
        // A page is not told why there is none: it may have been the token.
        if (code === 4401 || !opened) this.#token = undefined
        fail(new Error(`The WebSocket was closed (${code}).`))
      }
      socket.onmessage = ({ data }) => {
        const item = JSON.parse(data)
        if (!item.pong) return this.#take(item, known)
        this.#joined(joining.get(item.pong), known)
        joining.delete(item.pong)
      }
      socket.onopen = () => {
        opened = true
        this.#heard()
        this.#subscribe = () => {
          const minus = (a, b) => [...a.keys()].filter((topic) => a.get(topic) !== b.get(topic))
          const unsubscribe = minus(known, this.#readers)
          if (unsubscribe.length) send({ unsubscribe })
          const fresh = minus(this.#readers, known)
          const cursor = (topic) => this.#readers.get(topic).since
          // Those without one are last: a value must not overtake what others are due.
          for (const since of [...new Set(fresh.map(cursor))].sort(byAge)) {
            const subscribe = fresh.filter((topic) => cursor(topic) === since)
            send({ subscribe, since })
            const ping = commands++
            if (!ping) continue
            // What others are sent meanwhile is newer than what these are due.
            const group = subscribe.map((topic) => [topic, this.#readers.get(topic)])
            for (const [, reader] of group) reader.held = []
            joining.set(ping, group)
            send({ ping })
          }
          known = new Map(this.#readers)
        }
        this.#subscribe()
      }
    }).finally(() => {
      socket.onopen = socket.onmessage = this.#subscribe = undefined
      socket.close()
      // They begin again where they were.
      for (const reader of this.#readers.values()) reader.held = undefined
    })
  }

  /** Tells those whose command is obeyed, in order. What others have was not sent again. */
  #joined(group, known) {
    const copies = [...known.values()].flatMap(({ last }) => [...last.values()])
    for (const [pattern, reader] of group) {
      const items = [...copies, ...reader.held].sort((a, b) => byAge(idOf(a), idOf(b)))
      reader.held = undefined
      for (const item of items) this.#take(item, [[pattern, reader]])
    }
  }

  /** Gives an item to those it is news to. */
  #take(item, readers) {
    if (item.error) return this.#show('open', item.error)
    if (item.uncovered) return tell(this.#readers, 'onUncovered', item.uncovered)
    if (item.expired) {
      this.#token = undefined
      throw new Error('The token has ended.')
    }
    // Not told by the event's name, which may be a publisher's.
    const gap = item.gap ?? (item.reason && item)
    if (gap) return this.#gap(gap)
    const isValue = 'data' in item
    const message = isValue ? decode(item) : item.delete ?? item
    const { topic, id } = message
    for (const [pattern, reader] of readers) {
      if (!item.cursor && !matches(pattern, topic)) continue
      if (reader.held) {
        reader.held.push(item)
        continue
      }
      if (item.cursor) {
        reader.since ??= item.cursor
        continue
      }
      if (!older(id, reader.since)) reader.since = id
      const seen = reader.last.get(topic)?.id ?? reader.floor
      if (id === seen || older(id, seen)) continue
      if (isValue) {
        reader.last.set(topic, message)
        tell([reader], 'callback', message.data, message)
      } else {
        reader.last.delete(topic)
        reader.floor = id
        tell([reader], 'onDelete', message)
      }
    }
  }

  /** All up to this id, which a WebSocket does not say. */
  #seen(id, readers) {
    this.#cursor = id
    for (const reader of readers.values()) if (!older(id, reader.since)) reader.since = id
  }

  /** Old ids must not hide new ones. */
  #gap(gap) {
    if (!/history|many|memory/.test(gap.reason)) {
      this.#cursor = undefined
      for (const reader of this.#readers.values()) {
        if (reader.held) reader.held = []
        if (epoch(reader.since) !== epoch(gap.since)) continue
        reader.since = reader.floor = undefined
        reader.last.clear()
      }
    }
    tell(this.#readers, 'onGap', gap)
  }
}

function tell(readers, handler, ...news) {
  for (const { watchers } of readers.values()) {
    for (const hear of watchers) hear(handler, ...news)
  }
}

const epoch = (id) => id?.split('-')[0]

/** The SEQ may be beyond 2 ** 53. */
function older(a, b) {
  if (!a || !b || epoch(a) !== epoch(b)) return false
  return a.length < b.length || (a.length === b.length && a < b)
}

const byAge = (a, b) => older(b, a) - older(a, b)

const idOf = (item) => item.cursor ?? (item.delete ?? item).id

/** `*` is one segment, `**` at the end any rest. */
function matches(pattern, topic) {
  const wanted = pattern.split('/')
  const names = topic.split('/')
  const fits = (name, i) => i in names && (/^\*\*?$/.test(name) || name === names[i])
  return wanted.every(fits) && (names.length === wanted.length || wanted.at(-1) === '**')
}

/** An object that is not JSON is the envelope's way to write bytes. */
function decode(message) {
  const { type, data } = message
  if (data?.base64 === undefined || /[/+]json\s*(;|$)/i.test(type)) return message
  return { ...message, data: Uint8Array.from(atob(data.base64), (c) => c.charCodeAt(0)) }
}
