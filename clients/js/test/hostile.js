/**
 * The hostile set: servers, and what stands before servers, that answer as no server of the
 * contract does. Each is a behaviour of `network.js`.
 */

const EPOCH = '5f3a09c1'
const id = (seq) => `${EPOCH}-${seq}`
const SSE = { 'Content-Type': 'text/event-stream' }
const JSON_TYPE = { 'Content-Type': 'application/json' }
const PAGE = '<!doctype html><title>Sign in</title><p>Please sign in to this network.</p>'

/** An answer that is the same for every request. */
const always = (status, headers = {}, body = '') => ({ kind, line }) => {
  if (kind === 'websocket') return line.close(1006)
  line.head(status, headers)
  line.end(body)
}

const problem = (code, detail) => always(
  400, { 'Stentor-Error': code }, JSON.stringify({ code, detail }))

/** A stream that says this and then ends; long-polls are treated by `poll`. */
const stream = (text, { then = 'end', poll = always(503), headers = SSE } = {}) => (request) => {
  const { kind, line } = request
  if (kind === 'poll') return poll(request)
  if (kind === 'websocket') return line.close(1006)
  line.head(200, headers)
  line.write(text)
  line[then]?.()
}

/** Long-polls that are answered with this at once; streams are refused. */
const poll = (body) => ({ kind, line }) => {
  if (kind !== 'poll') return kind === 'sse' ? always(503)({ kind, line }) : line.close(1006)
  line.head(200, JSON_TYPE)
  line.end(body)
}

/** A WebSocket that does this once it is open; all else is refused. */
const socket = (then) => ({ kind, line }) => {
  if (kind !== 'websocket') return always(503)({ kind, line })
  line.open()
  then(line)
}

const value = (seq, topic = '/a', data = seq) => ({
  topic, id: id(seq), type: 'application/json', data,
})
const answered = (events, seq) => JSON.stringify({ events, cursor: id(seq) })
const notice = (item) => `event: stentor\ndata: ${JSON.stringify(item)}\n\n`
const cursor = (seq) => `id: ${id(seq)}\n` + notice({ cursor: id(seq) })
const event = (item) => `id: ${item.id}\ndata: ${JSON.stringify(item)}\n\n`

/** Says `text` again and again, `every_ms`. */
const repeat = (line, text, every_ms) => {
  const again = () => {
    if (line.isGone) return
    line.write(text)
    line.later(every_ms, again)
  }
  again()
}

/** A body that never ends. */
const endless = (text, every_ms = 100) => Object.assign(({ kind, line }) => {
  if (kind === 'websocket') return line.close(1006)
  line.head(200, kind === 'sse' ? SSE : JSON_TYPE)
  repeat(line, text, every_ms)
}, { isLarge: true })

/** A server of the contract, as small as can be. Its messages are numbered from `first`. */
export function good({ first = 5, heartbeat_s = 15 } = {}) {
  const server = ({ kind, since, wait, topics, line }) => {
    const has = since?.startsWith(EPOCH) && Number(since.split('-')[1]) >= server.seq
    const due = has ? [] : topics.slice(0, 1).map((topic) => value(server.seq, topic))
    if (kind === 'poll') {
      const answer = () => {
        line.head(200, JSON_TYPE)
        line.end(answered(due, server.seq))
      }
      return due.length || !(wait > 0) ? answer() : line.later(1000 * wait, answer)
    }
    if (kind === 'sse') {
      line.head(200, { ...SSE, 'Stentor-Heartbeat': `${heartbeat_s}` })
      line.write('retry: 2000\n' + (due.map(event).join('') || cursor(server.seq)))
      const beat_ms = 1000 * heartbeat_s
      if (beat_ms) line.later(beat_ms, () => repeat(line, ':\n', beat_ms))
      return
    }
    line.heard = (command) => {
      const { subscribe } = command
      if (subscribe) line.send(value(server.seq, subscribe[0]))
      line.send({ ok: { id: command.id, cursor: subscribe && id(server.seq) } })
    }
    line.open()
  }
  server.seq = first
  return server
}

/** Streams and answers are good, but whoever asks what came before hears of an older time. */
const behind = (next) => {
  const server = good({ first: 1000 })
  let seq = 1
  return (request) => {
    const { kind, wait, line } = request
    if (kind !== 'poll' || wait !== '0') return server(request)
    seq = next(seq)
    line.head(200, JSON_TYPE)
    line.end(answered([], seq))
  }
}

/** By name; `serves` marks those that a client rightly takes for open, `isLarge` the slow ones. */
export const hostile = {
  'a page for everything': always(200, { 'Content-Type': 'text/html' }, PAGE),
  'a page without a type': always(200, {}, PAGE),
  'nothing, 204': always(204),
  'nothing, 200': always(200),
  'an empty stream': stream(''),
  'an empty array': poll('[]'),
  'an empty object': poll('{}'),
  'no cursor': poll('{"events":[]}'),
  'bad request': always(400, {}, 'No.\n'),
  'a redirect to itself': ({ kind, topics, line }) => {
    if (kind === 'websocket') return line.close(1006)
    line.head(302, { Location: `/-/events?topic=${topics[0]}` })
    line.end()
  },
  'unauthorized for ever': always(401, {}, 'The token has expired.\n'),
  'forbidden for ever': always(403, {}, 'No.\n'),
  'not found': always(404, { 'Content-Type': 'text/html' }, PAGE.repeat(1000)),
  'too many requests': always(429, { 'Retry-After': '0' }),
  'broken inside': always(500, {}, 'Oops'),
  'bad gateway': always(502, { 'Content-Type': 'text/html' }, PAGE),
  'overloaded': always(503, { 'Retry-After': '0' }, 'Overloaded.\n'),
  'overloaded until a date': always(503, { 'Retry-After': 'Wed, 21 Oct 2065 07:28:00 GMT' }),
  'overloaded for ever': always(503, { 'Retry-After': '1e99' }),
  'a wait below zero': always(503, { 'Retry-After': '-5' }),
  'resets': ({ line }) => line.reset(),
  'no answer': () => {},
  'a head alone': ({ kind, line }) => (kind === 'websocket' ? line.open() : line.head(200, SSE)),
  'an error without an end': ({ kind, line }) => {
    if (kind === 'websocket') return line.open()
    line.head(500)
    line.write('Oop')
  },
  'a retry of none and an end': stream('retry: 0\n\n'),
  'a retry of words and a reset': stream('retry: soon\n\n', { then: 'reset' }),
  'a heartbeat and an end': stream(':\n'),
  'a value and an end': stream(event(value(7))),
  'broken JSON': stream('data: {"topic":\n\n'),
  'JSON of another kind': stream('data: 5\n\ndata: null\n\ndata: []\n\n', { then: 'none' }),
  'events of somebody else': stream('data: {"user":"x"}\n\n', { then: 'none' }),
  'a message without data': stream('data: {"topic":"/a"}\n\n', { then: 'none' }),
  'deferred for ever': stream('retry: 1\n: Stentor is away.\n'),
  'expired at once': stream('retry: 1\n' + notice({ end: { reason: 'token_expired' } })),
  'an endless line': endless('x'.repeat(2 ** 26)),
  'an endless event': endless(`data: ${'x'.repeat(2 ** 26)}\n`),
  'a trickle': Object.assign(endless(' ', 5_000), { isLarge: false, serves: true }),
  'events of null': poll(answered([null], 3)),
  'no events': poll(answered(undefined, 3)),
  'a cursor of another kind': Object.assign(poll('{"events":[],"cursor":5}'), { serves: true }),
  'null': poll('null'),
  'half an object': poll('{"events":[{"topic":"/a"'),
  'gaps without end': Object.assign(
    poll(answered([{ gap: { reason: 'epoch_changed', resume: 'values' } }], 3)), { serves: true }),
  'the same values at once': Object.assign(poll(answered([value(3)], 3)), { serves: true }),
  'a code without a problem': always(400, { 'Stentor-Error': 'topic_invalid' }, 'No.'),
  'cursors that are refused': problem('cursor_invalid', 'No.'),
  'lists that are refused': problem('topic_invalid', 'topic "/a": No.'),
  'lists that are too long': problem('subscription_limit', 'No.'),
  'the time before, for ever': Object.assign(behind((seq) => seq), { serves: true }),
  'the time before, a little later': Object.assign(behind((seq) => seq + 1), { serves: true }),
  'a socket that is silent': socket(() => {}),
  'a socket that closes': socket((line) => line.close(1000)),
  'a socket that expires': socket((line) => line.close(4401)),
  'a socket that refuses all': socket((line) => {
    line.heard = (command) => line.send({ error: { id: command.id, code: 'no', detail: 'No.' } })
  }),
  'a socket that errs': socket((line) => line.send({ error: 'No.' })),
  'a socket that talks of something else': socket((line) => line.send('hello')),
  'a socket that says null': socket((line) => line.send('null')),
  'a socket that says the end': socket((line) => line.send({ end: { reason: 'unknown' } })),
  'a socket that opens, talks and goes': socket((line) => {
    line.send(value(3))
    line.close(1012)
  }),
}
