/**
 * The table of states and events is the test: each row of the client's own table, and what each
 * event must not do in the other states, with a server and a clock in memory.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect, STATES } from '../stentor.js'
import { good } from './hostile.js'
import { Network } from './network.js'

const listeners = new Map()
globalThis.addEventListener = (name, f) => listeners.set(name, f)
globalThis.removeEventListener = (name) => listeners.delete(name)
globalThis.document = { visibilityState: 'visible' }
globalThis.reportError = () => {}

const SECOND_MS = 1_000
let servers = 0

/** A client that stands in one of the states. */
async function standing(state, transport = 'sse') {
  const network = new Network().install()
  const { clock } = network
  clock.now_ms = 1e6 + 1e7 * servers
  const steps = []
  const shown = []
  const lines = []
  const server = good()
  const answers = { connecting: () => {}, waiting: ({ line }) => line.reset() }
  // The request that catches up with a new topic gets no answer.
  const orNothing = (request) => (request.wait !== '0' || !request.number) && server(request)
  const answer = answers[state] ?? (state === 'catching up' ? orNothing : server)
  network.answer = (request) => {
    lines.push(request.line)
    return network.now ? network.now(request) : answer(request)
  }
  let give
  const token = () => new Promise((resolve) => { give = resolve })
  const live = connect(`http://state-${++servers}.example`, {
    transport, token, onStep: (step) => steps.push(step),
  })
  if (state !== 'stopped') {
    live.watch('/a', () => {}, { onState: (now) => shown.push(now) })
    await clock.pass(6 * SECOND_MS) // The token does not come in time.
    if (state === 'catching up') {
      live.watch('/b', () => {})
      await clock.pass(10)
    }
  }
  const current = () => steps.at(-1)?.to ?? 'stopped'
  // At its beginning, whatever its length.
  const before = steps.length
  if (state === 'waiting') {
    while (steps.length === before || current() !== 'waiting') await clock.pass(10)
  }
  assert.equal(current(), state)
  return { network, clock, live, server, steps, lines, shown, current, give: () => give?.('t') }
}

/** How each event is caused. */
const causes = {
  list: ({ live }) => live.watch('/new', () => {}),
  again: () => listeners.get('online')?.({ type: 'online' }),
  end: ({ live }) => live.close(),
  failed: ({ lines }) => lines.at(-1)?.reset(),
  heard: ({ lines, current }) => {
    if (current() !== 'connecting') return
    lines.at(-1).head(200, { 'Content-Type': 'text/event-stream' })
    lines.at(-1).write('retry: 2000\n')
  },
  level: ({ lines, current }) => {
    if (current() !== 'catching up') return
    lines.at(-1).head(200, { 'Content-Type': 'application/json' })
    lines.at(-1).end('{"events":[],"cursor":"5f3a09c1-5"}')
  },
  due: ({ clock, current }) => current() === 'waiting' && clock.pass(4 * SECOND_MS),
  behind: ({ live, clock, current, network, server }) => {
    if (current() !== 'open') return
    network.now = ({ kind, line }) => kind === 'sse' && server({ kind, line, topics: ['/a'] })
    live.watch('/new', () => {})
    return clock.pass(10)
  },
}

for (const [state, row] of Object.entries(STATES)) {
  for (const [event, cause] of Object.entries(causes)) {
    if (event === 'behind') continue
    test(`${event} in '${state}' leads to '${row[event] ?? state}'`, async () => {
      const standing_ = await standing(state)
      const { steps, clock, live } = standing_
      const before = steps.length
      await cause(standing_)
      await clock.pass(10)
      const step = steps.slice(before).find((step) => step.event === event)
      if (row[event]) assert.deepEqual([step?.from, step?.to], [state, row[event]])
      else assert.equal(steps.length, before, JSON.stringify(steps.at(-1)))
      live.close()
    })
  }
}

test('a new topic on an open stream is caught up with', async () => {
  const here = await standing('open')
  const before = here.steps.length
  await causes.behind(here)
  const events = here.steps.slice(before).map(({ event }) => event)
  assert.deepEqual(events, ['list', 'behind'])
  here.live.close()
})

const ends = { end: 'stopped', failed: 'waiting' }
const LIMITS_S = {
  connecting: { all: 10 },
  'catching up': { sse: 10, poll: 10 },
  open: { sse: 40, poll: 35, websocket: 30 },
  waiting: { all: 30 },
}

for (const [state, limits] of Object.entries(LIMITS_S)) {
  for (const transport of ['sse', 'poll', 'websocket']) {
    const limit_s = limits.all ?? limits[transport]
    if (!limit_s) continue
    test(`'${state}' ends by itself within ${limit_s} s (${transport})`, async () => {
      const { network, clock, live, steps } = await standing(state, transport)
      network.isDead = true
      const before = steps.length
      await clock.pass(limit_s * SECOND_MS + 1)
      assert.equal(steps[before]?.from, state)
      assert.equal(steps[before].to, state === 'waiting' ? 'connecting' : 'waiting')
      live.close()
    })
  }
}

test('the table has these states, and each but stopped can fail or end', () => {
  assert.deepEqual(Object.keys(STATES), [
    'stopped', 'connecting', 'catching up', 'open', 'waiting',
  ])
  for (const [state, row] of Object.entries(STATES)) {
    for (const [event, to] of Object.entries(row)) {
      assert.ok(STATES[to], to)
      assert.ok(causes[event], `${event} is not tried here`)
      if (ends[event]) assert.equal(to, ends[event])
    }
    if (state !== 'stopped') assert.equal(row.end, 'stopped')
  }
})

for (const [name, visibility, silent_s, isWoken] of [
  ['online', 'visible', 1, true], ['online', 'hidden', 1, true],
  ['visibilitychange', 'visible', 21, true], ['visibilitychange', 'visible', 1, false],
  ['visibilitychange', 'hidden', 21, false], ['resume', 'hidden', 21, true],
]) {
  const what = `${name} (${visibility}) after ${silent_s} s of silence`
  test(`${what} ${isWoken ? 'begins' : 'needs no'} new connection`, async () => {
    const { clock, live, network } = await standing('open')
    network.isDead = true
    await clock.pass(silent_s * SECOND_MS)
    network.isDead = false
    const asked = network.requests.length
    document.visibilityState = visibility
    listeners.get(name)({ type: name })
    await clock.pass(10)
    document.visibilityState = 'visible'
    assert.equal(network.requests.length, asked + isWoken)
    live.close()
  })
}

for (const name of ['online', 'visibilitychange', 'resume']) {
  test(`${name} ends a wait, and a storm of it keeps the pace`, async () => {
    const { clock, live, network, current } = await standing('waiting')
    const asked = network.requests.length
    listeners.get(name)({ type: name })
    await clock.pass(1)
    assert.equal(network.requests.length, asked + 1)
    for (let i = 0; i < 600; i++) {
      await clock.pass(100)
      listeners.get(name)({ type: name })
    }
    assert.ok(network.most(60_000) <= 60, `${network.most(60_000)} in a minute`)
    live.close()
    assert.equal(current(), 'stopped')
    assert.equal(listeners.size, 0)
  })
}

test('a late token begins a new connection', async () => {
  const { clock, live, network, give, current } = await standing('open')
  const asked = network.requests.length
  give()
  await clock.pass(10)
  assert.equal(network.requests.length, asked + 1)
  assert.equal(network.requests.at(-1).token, 'Bearer t')
  assert.equal(current(), 'open')
  live.close()
})

test('a server whose cursor is older is waited for', async () => {
  const { clock, live, network, server, shown } = await standing('open')
  server.seq = 1_000
  const older = ({ line }) => {
    line.head(200, { 'Content-Type': 'application/json' })
    line.end('{"events":[],"cursor":"5f3a09c1-7"}')
  }
  causes.again()
  await clock.pass(10)
  network.now = (request) => (request.wait === '0' ? older(request) : server(request))
  const asked = network.requests.length
  live.watch('/b', () => {})
  await clock.pass(60 * SECOND_MS)
  const made = network.requests.length - asked
  assert.ok(made > 5 && made <= 60, `${made}`)
  assert.match(shown.at(-1).reason, /server is behind/)
  network.now = undefined
  await clock.pass(5 * SECOND_MS)
  assert.equal(shown.at(-1).state, 'open')
  live.close()
})

test('auto tries a stream again after a minute of long-poll', async () => {
  const network = new Network().install()
  const { clock } = network
  clock.now_ms = 1e6 + 1e7 * servers
  const server = good()
  let isHeld = true
  network.answer = (request) => (request.kind === 'sse' && isHeld ? undefined : server(request))
  const live = connect(`http://state-${++servers}.example`)
  const shown = []
  live.watch('/a', () => {}, { onState: (now) => shown.push(now) })
  const streams = () => network.requests.filter(({ kind }) => kind === 'sse').length
  await clock.pass(60 * SECOND_MS)
  assert.deepEqual([shown.at(-1).state, shown.at(-1).transport, streams()], ['open', 'poll', 1])
  await clock.pass(45 * SECOND_MS)
  assert.equal(streams(), 2)
  await clock.pass(3_600 * SECOND_MS)
  assert.ok(streams() < 10, `${streams()}`)
  isHeld = false
  listeners.get('online')({ type: 'online' })
  await clock.pass(60 * SECOND_MS)
  assert.deepEqual([shown.at(-1).state, shown.at(-1).transport], ['open', 'sse'])
  live.close()
})

test('a watch after a close within a callback begins with the value', async () => {
  const { live, clock, network, lines } = await standing('open')
  const values = []
  live.watch('/a', (value) => value === 9 && live.close())
  const item = { topic: '/a', id: '5f3a09c1-9', type: 'application/json', data: 9 }
  lines.at(-1).write(`id: ${item.id}\ndata: ${JSON.stringify(item)}\n\n`)
  await clock.pass(10)
  live.watch('/a', (value) => values.push(value))
  await clock.pass(10 * SECOND_MS)
  assert.equal(network.requests.at(-1).since, undefined)
  assert.deepEqual(values, [5])
  live.close()
})

for (const state of Object.keys(STATES)) {
  test(`a callback that closes on the way to '${state}' leaves nothing`, async () => {
    const network = new Network().install()
    const { clock } = network
    clock.now_ms = 1e6 + 1e7 * servers
    const server = good()
    const failing = ({ line }) => line.reset()
    network.answer = state === 'waiting' ? failing : server
    const steps = []
    const live = connect(`http://state-${++servers}.example`, {
      onStep: (step) => {
        steps.push(step.to)
        if (step.to === state) live.close()
      },
    })
    live.watch('/a', () => {})
    await clock.pass(SECOND_MS)
    live.watch('/b', () => {})
    await clock.pass(SECOND_MS)
    live.close()
    await clock.pass(10)
    assert.ok(steps.includes(state), `${steps}`)
    assert.equal(steps.at(-1), 'stopped')
    assert.deepEqual(clock.waits, [])
    assert.equal(listeners.size, 0)
  })
}
