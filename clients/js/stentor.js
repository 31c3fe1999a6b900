/**
 * Many live values over one connection. Each topic or pattern is a reader with a cursor, the id up
 * to which it has seen all. README.md has the reasons.
 */

const end = 'stopped'
const busy = { failed: 'waiting', again: 'connecting', end }

/** Where each event leads from each state. An event without a row changes nothing. */
export const STATES = {
  stopped: { list: 'connecting' },
  connecting: { behind: 'catching up', heard: 'open', ...busy },
  'catching up': { level: 'connecting', ...busy },
  open: { list: 'connecting', ...busy },
  waiting: { due: 'connecting', again: 'connecting', end },
}

const ANSWER_MS = 10_000 // For each byte.
const BODY_MS = 300_000 // For the last one of a long-poll.
const WAIT_S = 25 // Of a long-poll.
const PING_MS = 20_000
const STABLE_MS = 10_000
const TOKEN_MS = 5_000
const RENEW_MS = 30_000
const BETTER_MS = 60_000
const HOUR_MS = 3_600_000
const PACE_MS = 1_100
const TEXT_MAX = 2 ** 28
const WAKES = ['online', 'visibilitychange', 'resume']
const DEAD = new Error('The line is dead.')
const SILENT = new Error('The server does not answer.')
const OLDER = new Error('The server is behind: it has less than was seen before.')

const now = () => performance.now()

/** All requests to a server have one pace: five at once, then one each 1.1 s. */
const paces = new Map()
const early_ms = (server) => (paces.get(server) ?? 0) - 4 * PACE_MS - now()

let page

/** All on the page's own server share one connection. */
export const watch = (...watched) => (page ??= connect()).watch(...watched)

export const connect = (server, options) => new Connection(server, options)

class Connection {
  #url
  #auto
  #onStep
  #renew // Gets a token.
  #token
  #renewal // The timer of the next #renew, while there is no token.
  #transport
  #state = 'stopped'
  #shown
  #readers = new Map() // By topic or pattern: { since, floor, last, held, refused, watchers }.
  #changes = 0
  #listed // The changes that the server knows.
  #cursor // Of all readers.
  #attempt
  #alarm // Ends the state.
  #settling
  #subscribe // While a WebSocket is open.
  #heard_ms
  #opened_ms
  #better_ms // When auto tries SSE again.
  #patience_ms = BETTER_MS
  #streamed = false
  #failures = 0
  #retry_ms = 2_000

  constructor(server = '', { transport = 'auto', since, mode, token, onStep } = {}) {
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
    this.#renew = async () => (typeof token === 'function' ? token() : token)
    this.#onStep = onStep
    this.#show('connecting')
  }

  watch(topic, callback, handlers) {
    check(topic)
    let reader = this.#readers.get(topic)
    if (!reader) {
      const since = this.#state === 'stopped' ? this.#cursor : undefined
      reader = { since, last: new Map(), watchers: new Set() }
      this.#readers.set(topic, reader)
      this.#changes += 1
      this.#change()
    }
    let ready = false
    const all = { onRefused: ({ reason }) => report(new Error(reason)), ...handlers, callback }
    const hear = (name, ...news) => {
      if (ready && reader.watchers.has(hear)) call(all[name], ...news)
    }
    reader.watchers.add(hear)
    queueMicrotask(() => {
      ready = true
      hear('onState', this.#shown)
      if (reader.refused) hear('onRefused', reader.refused)
      for (const message of reader.last.values()) hear('callback', message.data, message)
    })
    return () => {
      if (!reader.watchers.delete(hear) || reader.watchers.size) return
      this.#readers.delete(topic)
      this.#changes += 1
      this.#change()
    }
  }

  close() {
    this.#show('closed')
    for (const { watchers } of this.#readers.values()) watchers.clear()
    this.#readers.clear()
    this.#on('end')
  }

  /** Many changes in a row make one connection. */
  #change() {
    this.#settling ??= setTimeout(() => {
      this.#settling = undefined
      if (!this.#readers.size) this.#on('end')
      else if (this.#subscribe) this.#subscribe()
      else if (this.#listed !== this.#changes) this.#on('list')
    }, Math.max(5, this.#subscribe ? 0 : early_ms(this.#url.origin)))
  }

  #on(event, problem) {
    const from = this.#state
    const to = STATES[from][event]
    if (!to) return
    this.#state = to
    call(this.#onStep, { from, event, to, reason: problem?.message, code: problem?.code })
    if (this.#shown.state === 'closed' && from === 'stopped') this.#show('connecting')
    if (this.#state !== to) return // A callback has closed it.
    if (to === 'open') return this.#open()
    clearTimeout(this.#alarm)
    this.#attempt?.abort()
    if (from === 'stopped') {
      for (const name of WAKES) globalThis.addEventListener?.(name, this.#wake, true)
    }
    if (/list|due/.test(event)) for (const reader of this.#readers.values()) reader.refused = false
    if (to === 'connecting') this.#begin(this.#connect)
    if (to === 'catching up') this.#begin(this.#catchUp)
    if (to === 'waiting') this.#wait(problem, from)
    if (to === 'stopped') {
      this.#cursor = undefined
      this.#forget()
      for (const name of WAKES) globalThis.removeEventListener?.(name, this.#wake, true)
    }
  }

  #begin(activity) {
    const { signal } = (this.#attempt = new AbortController())
    this.#heard_ms = now()
    this.#expect(ANSWER_MS)
    activity.call(this, signal).catch((problem) => {
      if (signal.aborted) return
      if (this.#refuse(problem, problem.readers)) return this.#on('again')
      if (problem.hasExpired) this.#forget()
      // A token that has served is renewed at once.
      this.#on(problem.hasExpired && this.#isStable() ? 'again' : 'failed', problem)
    })
  }

  #open() {
    this.#opened_ms = now()
    if (this.#transport === 'sse') this.#patience_ms = BETTER_MS
    const { state, transport } = this.#shown
    if (state !== 'open' || transport !== this.#transport) this.#show('open')
    if (this.#listed !== this.#changes) this.#change()
  }

  #isStable(state = this.#state) {
    return state === 'open' && now() - this.#opened_ms > STABLE_MS
  }

  /** Waits briefly, for the server may be back soon; `auto` may try the other way. */
  #wait(problem, from) {
    if (this.#isStable(from)) this.#failures = 0
    const cap_ms = Math.max(4_000, this.#retry_ms, problem.cap_ms || 0)
    const most_ms = Math.min(cap_ms, this.#retry_ms * 2 ** this.#failures++, HOUR_MS)
    const isSilent = problem === SILENT
    if (this.#auto) {
      const isTrial = this.#patience_ms > BETTER_MS
      const isHopeless = !this.#streamed && (isSilent || isTrial || this.#failures % 3 === 0)
      if (isSilent) this.#streamed = false
      this.#transport = this.#transport === 'sse' && isHopeless ? 'poll' : 'sse'
      if (this.#transport === 'poll') {
        this.#better_ms = now() + this.#patience_ms
        this.#patience_ms = Math.min(2 * this.#patience_ms, HOUR_MS)
      }
    }
    const waited_ms = isSilent ? ANSWER_MS : 0
    const pause_ms = Math.max(0, most_ms * (0.5 + Math.random() / 2) - waited_ms)
    this.#expect(pause_ms, () => this.#on('due'))
    this.#show('waiting', problem)
  }

  /** The line may have died while the page slept. */
  #wake = ({ type }) => {
    if (type === 'visibilitychange' && globalThis.document?.visibilityState === 'hidden') return
    const isNew = type === 'online'
    if (isNew) {
      this.#streamed = false
      if (this.#auto) this.#transport = 'sse'
    }
    const isQuiet = now() - this.#heard_ms > PING_MS
    if (isNew || isQuiet || this.#state === 'waiting') this.#on('again')
  }

  /** Ends the state unless something is heard in time. */
  #expect(ms, end = () => this.#on('failed', this.#state === 'open' ? DEAD : SILENT)) {
    clearTimeout(this.#alarm)
    this.#alarm = setTimeout(end, ms)
  }

  #heard(ms, end) {
    this.#heard_ms = now()
    this.#expect(ms, end)
    this.#on('heard')
  }

  #show(state, { message: reason, code } = {}) {
    this.#shown = { state, transport: this.#transport, reason, code }
    tell(this.#readers, 'onState', this.#shown)
  }

  #forget() {
    clearTimeout(this.#renewal)
    this.#token = this.#renewal = undefined
  }

  /** A function that hangs or throws is called again later. */
  async #authorize(signal) {
    if (this.#token !== undefined || this.#renewal) return
    this.#renewal = setTimeout(() => {
      this.#renewal = undefined
      this.#authorize()
    }, RENEW_MS)
    let isLate = !signal
    const asked = this.#renew().then((token) => {
      this.#forget()
      this.#token = token
      if (isLate && token !== undefined) this.#on('again')
    }).catch(report)
    await Promise.race([asked, signal && sleep(TOKEN_MS, signal)])
    isLate = true
  }

  async #connect(signal) {
    await this.#authorize(signal)
    if (signal.aborted) return
    const readers = this.#wanted()
    this.#listed = this.#changes
    if (this.#transport === 'websocket') return this.#websocket(signal)
    if (this.#behind().size) return this.#on('behind')
    if (this.#transport === 'sse') return this.#stream(signal, readers)
    for (;;) {
      const wait_s = this.#state === 'open' ? WAIT_S : 0
      const { events, cursor } = await this.#ask(signal, readers, this.#cursor, wait_s)
      this.#on('heard')
      for (const item of events) this.#take(item, readers)
      if (older(cursor, this.#cursor)) throw OLDER
      this.#seen(cursor, readers)
      if (!this.#auto || now() < this.#better_ms) continue
      this.#transport = 'sse'
      return this.#on('again')
    }
  }

  #wanted(isWanted = () => true) {
    return new Map([...this.#readers].filter(([, it]) => !it.refused && isWanted(it)))
  }

  async #turn(signal) {
    const { origin } = this.#url
    for (let ms; (ms = early_ms(origin)) > 0; signal.throwIfAborted()) {
      this.#expect(ms + ANSWER_MS)
      await sleep(ms, signal)
    }
    paces.set(origin, Math.max(paces.get(origin) ?? 0, now()) + PACE_MS)
  }

  /** With `wait_s` a long-poll, else a stream. */
  async #fetch(signal, readers, since, wait_s) {
    await this.#turn(signal)
    const isPoll = wait_s !== undefined
    this.#expect(ANSWER_MS + (isPoll && wait_s * 1000))
    const url = new URL(this.#url)
    for (const topic of readers.keys()) url.searchParams.append('topic', topic)
    if (since) url.searchParams.set('since', since)
    if (isPoll) url.searchParams.set('wait', wait_s)
    const Accept = isPoll ? 'application/json' : 'text/event-stream'
    const headers = this.#token ? { Accept, Authorization: `Bearer ${this.#token}` } : { Accept }
    const response = await fetch(url, { headers, cache: 'no-store', redirect: 'manual', signal })
    const { status, headers: fields } = response
    const type = fields.get('content-type') ?? 'without a type'
    if (status === 200 && type.toLowerCase().startsWith(Accept)) return response
    const { value = '' } = await texts(response).next()
    const code = fields.get('stentor-error') ?? undefined
    const what = response.ok ? `${type}: no ${Accept}` : value.slice(0, 200)
    const reason = code ? JSON.parse(value).detail : `${status || 'A redirect.'} ${what}`
    const cap_ms = 1000 * (status < 500 ? 30 : fields.get('retry-after'))
    throw failure(reason, { readers, code, cap_ms, hasExpired: status === 401 })
  }

  /** A long-poll's items, and their cursor. */
  async #ask(...asked) {
    const response = await this.#fetch(...asked)
    const end_ms = now() + BODY_MS
    let text = ''
    for await (const part of texts(response)) {
      text = grow(text, part)
      this.#expect(Math.min(ANSWER_MS, end_ms - now()))
    }
    this.#heard_ms = now()
    const answer = JSON.parse(text)
    if (!answer.cursor) throw new Error('The answer has no cursor.')
    return answer
  }

  #behind() {
    return this.#wanted(({ since }) => this.#cursor && (!since || older(since, this.#cursor)))
  }

  /** Brings new readers to the others' cursor: a stream from there hides their older values. */
  async #catchUp(signal) {
    const behind = this.#behind()
    // The items are told once all are there.
    const items = []
    let since
    do {
      const { events, cursor } = await this.#ask(signal, behind, since, 0)
      items.push(...events)
      if (since && !older(since, cursor)) throw OLDER
      since = cursor
    } while (older(since, this.#cursor))
    for (const item of items) this.#take(item, behind)
    this.#seen(this.#cursor, behind)
    this.#on('level')
  }

  async #stream(signal, readers) {
    const response = await this.#fetch(signal, readers, this.#cursor)
    // A stream without heartbeats may be silent, so it is begun again now and then.
    const beat_s = parseFloat(response.headers.get('stentor-heartbeat') ?? 15)
    const silent_ms = beat_s === 0 ? 600_000 : Math.min(2_000 * (beat_s || 15) + 10_000, HOUR_MS)
    let rest = ''
    let data = ''
    for await (const text of texts(response)) {
      this.#streamed = true
      const lines = text.split('\n')
      lines[0] = grow(rest, lines[0])
      rest = lines.pop()
      // Only a reader that is deferred gets a comment with words.
      const reason = lines.find((line) => line.startsWith(': '))
      if (!reason && (lines.length || this.#state === 'open')) this.#heard(silent_ms)
      for (const line of lines) {
        if (line.startsWith('data: ')) data = grow(data, line.slice(6) + '\n')
        if (line.startsWith('retry: ')) this.#retry_ms = Math.max(500, +line.slice(7) || 0)
        if (line || !data) continue
        const item = JSON.parse(data)
        this.#take(item, readers)
        this.#seen(item.id, readers)
        data = ''
      }
      if (reason) throw new Error(reason.slice(2))
    }
    throw new Error('The stream has ended.')
  }

  async #websocket(signal) {
    await this.#turn(signal)
    this.#expect(ANSWER_MS)
    const own = 'stentor.v1'
    const protocols = this.#token ? [own, `stentor.token.${this.#token}`] : own
    const socket = new WebSocket(this.#url.href.replace('http', 'ws'), protocols)
    let known = new Map()
    const groups = new Map() // By the id of the command, the readers that it is for.
    let commands = 0
    const send = (command, group = new Map()) => {
      this.#expect(ANSWER_MS)
      groups.set(++commands, group)
      socket.send(JSON.stringify({ id: commands, ...command }))
    }
    const reply = ({ id, cursor, detail, code, status }) => {
      const group = groups.get(id)
      groups.delete(id)
      if (!code) return group && this.#joined(group, known, cursor)
      const problem = failure(detail, { code, hasExpired: status === 401 })
      if (!this.#refuse(problem, group, true)) throw problem
      for (const topic of group.keys()) known.delete(topic)
      this.#subscribe()
    }
    return new Promise((_, fail) => {
      signal.onabort = () => fail(signal.reason)
      socket.onerror = () => {} // It closes, too.
      socket.onclose = ({ code, reason }) => fail(failure(`The WebSocket was closed (${code}).`, {
        code: reason || undefined,
        // A page is not told why there is none: it may have been the token.
        hasExpired: code === 4401 || !commands,
      }))
      socket.onmessage = ({ data }) => {
        try {
          const item = JSON.parse(data)
          this.#heard(PING_MS, () => send())
          const answer = item.ok ?? item.error
          if (answer) reply(answer)
          else this.#take(item, known)
        } catch (problem) {
          fail(problem)
        }
      }
      const subscribe = () => {
        const wanted = this.#wanted()
        const minus = (a, b) => [...a].filter(([topic, reader]) => b.get(topic) !== reader)
        const gone = minus(known, wanted)
        if (gone.length) send({ unsubscribe: gone.map(([topic]) => topic) })
        const fresh = minus(wanted, known)
        known = wanted
        // Those without a cursor are last: a value must not overtake what others are due.
        for (const since of [...new Set(fresh.map(([, reader]) => reader.since))].sort(byAge)) {
          const group = new Map(fresh.filter(([, reader]) => reader.since === since))
          send({ subscribe: [...group.keys()], since }, group)
          // Messages that others receive meanwhile are newer than those that these are due.
          if (commands > 1) for (const reader of group.values()) reader.held = []
        }
        this.#listed = this.#changes
      }
      socket.onopen = () => (this.#subscribe = subscribe)()
    }).finally(() => {
      socket.onopen = socket.onmessage = this.#subscribe = undefined
      socket.close()
      // They begin again where they were.
      for (const reader of this.#readers.values()) reader.held = undefined
    })
  }

  /** Tells those of a command what came, in order. What others have was not sent again. */
  #joined(group, known, cursor) {
    const copies = [...known.values()].flatMap(({ last }) => [...last.values()])
    for (const [topic, reader] of group) {
      const items = [...copies, ...reader.held ?? []].sort((a, b) => byAge(a.id, b.id))
      reader.held = undefined
      for (const item of items) this.#take(item, [[topic, reader]])
    }
    this.#seen(cursor, group)
  }

  /** Leaves out what a problem is about, if it is not all, so that the rest goes on. */
  #refuse({ message: reason, code }, readers, isCommand) {
    if (!code || !readers) return
    const all = [...readers]
    if (code === 'cursor_invalid' && all.some(([, { since }]) => since)) {
      this.#gap({ reason: code, resume: 'values' })
      return true
    }
    const count = this.#wanted().size
    const named = all.filter(([topic]) => reason.includes(`"${topic}"`))
    const refused = code === 'patterns_disabled' ? all.filter(([topic]) => topic.includes('*'))
      // The newest, and twice as many each time.
      : code === 'subscription_limit' ? all.slice(-Math.max(1, this.#readers.size - count))
      : named.length || !isCommand ? named : all
    if (refused.length === count) return
    for (const [topic, reader] of refused) {
      reader.refused = { topic, reason, code }
      tell([reader], 'onRefused', reader.refused)
    }
    return refused.length > 0
  }

  /** Gives an item to those it is news to. */
  #take(item, readers) {
    const { topic, id, cursor, gap, access, end } = item
    if (!topic) {
      if (gap) this.#gap(gap)
      if (access) tell(this.#readers, 'onAccessLimited', access)
      if (end) throw failure('The token has ended.', { code: end.reason, hasExpired: true })
      return this.#seen(cursor, readers)
    }
    const message = decode(item)
    for (const [pattern, reader] of readers) {
      if (!matches(pattern, topic)) continue
      if (reader.held) {
        reader.held.push(item)
        continue
      }
      if (!older(id, reader.since)) reader.since = id
      const seen = reader.last.get(topic)?.id ?? reader.floor
      if (id === seen || older(id, seen)) continue
      if (item.deleted) {
        reader.last.delete(topic)
        reader.floor = id
        tell([reader], 'onDelete', item)
      } else {
        reader.last.set(topic, message)
        tell([reader], 'callback', message.data, message)
      }
    }
  }

  /** All up to this id. */
  #seen(id, readers) {
    if (!id || this.#state === 'stopped') return // By a callback.
    if (!older(id, this.#cursor)) this.#cursor = id
    for (const reader of readers.values()) {
      if (!reader.held && !older(id, reader.since)) reader.since = id
    }
  }

  #gap(gap) {
    if (gap.resume === 'values') {
      // Old ids must not hide new ones.
      this.#cursor = undefined
      for (const reader of this.#readers.values()) {
        if (reader.held) reader.held = []
        if (gap.since && epoch(reader.since) !== epoch(gap.since)) continue
        reader.since = reader.floor = undefined
        reader.last.clear()
      }
    }
    tell(this.#readers, 'onGap', gap)
  }
}

const failure = (reason, more) => Object.assign(new Error(reason), more)

function tell(readers, handler, ...news) {
  for (const { watchers } of readers.values()) {
    for (const hear of watchers) hear(handler, ...news)
  }
}

/** What a callback throws is reported, and stops nothing else. */
async function call(callback, ...news) {
  try {
    await callback?.(...news)
  } catch (error) {
    report(error)
  }
}

const report = (error) => (globalThis.document ? reportError : console.error)(error)

const sleep = (ms, signal) => new Promise((resolve) => {
  const end = () => {
    clearTimeout(timer)
    signal.removeEventListener('abort', end)
    resolve()
  }
  const timer = setTimeout(end, ms)
  signal.addEventListener('abort', end)
})

/** The text of a body, as it comes. */
async function* texts({ body }) {
  const reader = body?.getReader()
  const decoder = new TextDecoder()
  for (let part; reader && !(part = await reader.read()).done;) {
    yield decoder.decode(part.value, { stream: true })
  }
}

function grow(text, more) {
  if (text.length + more.length > TEXT_MAX) throw new Error('An event is too long.')
  return text + more
}

const epoch = (id) => id?.split('-')[0]

/** The SEQ may be beyond 2 ** 53. */
function older(a, b) {
  if (!a || !b || epoch(a) !== epoch(b)) return false
  return a.length < b.length || (a.length === b.length && a < b)
}

const byAge = (a, b) => older(b, a) - older(a, b)

const NAMES = /^(?=.)(\/(?!\.\.?(\/|$))(\*|[^*/\p{Cc}\p{Cs}]+))*(\/\*\*)?$/u

/** Throws for what the server would refuse. */
function check(topic) {
  if (
    typeof topic !== 'string' || !NAMES.test(topic) || /^\/(-|\.well-known)(\/|$)/.test(topic)
    || new TextEncoder().encode(topic).length > 512
    || topic.split(/\/\*(?=\/|$)/).length > 3
    || (topic.includes('*') && topic.split('/').length > 33)
  ) throw new TypeError(`No topic or pattern: '${topic}'.`)
}

/** `*` is one segment, `**` at the end any rest. */
function matches(pattern, topic) {
  const wanted = pattern.split('/')
  const names = topic.split('/')
  const fits = (name, i) => i in names && (/^\*\*?$/.test(name) || name === names[i])
  return wanted.every(fits) && (names.length === wanted.length || wanted.at(-1) === '**')
}

const decode = ({ data_base64, ...message }) => (data_base64 === undefined ? message
  : { ...message, data: Uint8Array.from(atob(data_base64), (c) => c.charCodeAt(0)) })
