/**
 * The client against the hostile set, in a time that is not real: how many requests it makes, what
 * it says of itself, when it notices that a line is dead, and when it is back.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { connect } from '../stentor.js'
import { good, hostile } from './hostile.js'
import { Network } from './network.js'

const MINUTE_MS = 60_000
const SPANS = [[MINUTE_MS, 60], [1_000, 5]]
const TRANSPORTS = ['auto', 'sse', 'poll', 'websocket']
const thrown = []
process.on('unhandledRejection', (error) => thrown.push(error))
process.on('uncaughtException', (error) => thrown.push(error))

/** A network and a client of it; each has a server of its own, for one pace holds for a server. */
let servers = 0
function visit(answer, options) {
  const network = new Network().install()
  network.clock.now_ms = 1_000_000 + 10 * MINUTE_MS * servers
  network.url = `http://server-${++servers}.example`
  network.answer = answer
  const live = connect(network.url, options)
  const shown = []
  const values = []
  const stop = live.watch('/a', (value) => values.push(value), {
    onState: (state) => shown.push({ ...state, at_ms: network.clock.now_ms }),
  })
  return { network, clock: network.clock, live, shown, values, stop }
}

function pacedWell(network, context) {
  for (const [span_ms, most] of SPANS) {
    const made = network.most(span_ms)
    assert.ok(made <= most, `${context}: ${made} requests in ${span_ms} ms`)
  }
}

for (const [name, answer] of Object.entries(hostile)) {
  for (const transport of TRANSPORTS) {
    test(`hostile: ${name} (${transport})`, async () => {
      let tokens = 0
      const token = async () => `t${++tokens}`
      const { network, clock, live, shown } = visit(answer, { transport, token })
      await clock.pass((answer.isLarge ? 0.01 : 2) * MINUTE_MS)
      live.watch('/b', () => {})
      await clock.pass((answer.isLarge ? 0.01 : 8) * MINUTE_MS)
      const { length } = network.requests
      assert.ok(answer.serves || answer.isLarge || length >= 5, `${length}: it never gives up`)
      pacedWell(network, name)
      assert.ok(tokens <= network.requests.length + 1, `${tokens} tokens`)
      const isOpen = shown.some(({ state }) => state === 'open')
      if (!answer.serves && !isOpen) assert.equal(shown.at(-1).state, 'waiting')
      assert.deepEqual(thrown.splice(0), [])
      live.close()
      await clock.pass(1)
      assert.deepEqual(clock.waits.filter((ms) => ms > 1_000), [], 'nothing is left')
    })
  }
}

test('a page in place of a stream is told, and the wait grows', async () => {
  for (const transport of TRANSPORTS.slice(0, 3)) {
    const { network, clock, live, shown } = visit(hostile['a page for everything'], { transport })
    await clock.pass(10 * MINUTE_MS)
    assert.ok(shown.every(({ state }) => state !== 'open'), JSON.stringify(shown))
    assert.match(shown.at(-1).reason, /^200 text\/html: no (text\/event-stream|application\/json)$/)
    const count = network.requests.length
    assert.ok(count < 50, `${count} requests in ten minutes`)
    live.close()
  }
})

for (const transport of TRANSPORTS) {
  test(`a line that is dead from a moment on is noticed in 45 s (${transport})`, async () => {
    for (let alive_ms = 0; alive_ms <= 40_000; alive_ms += 1_700) {
      const { network, clock, live, shown } = visit(good(), { transport })
      await clock.pass(1)
      if (alive_ms === 0) network.isDead = true
      await clock.pass(alive_ms)
      network.isDead = true
      const since_ms = clock.now_ms
      await clock.pass(MINUTE_MS)
      const noticed = shown.find(({ at_ms, state }) => at_ms >= since_ms && state === 'waiting')
      assert.ok(noticed, `${alive_ms}: it was not noticed`)
      const notice_ms = noticed.at_ms - since_ms
      assert.ok(notice_ms <= 45_000, `${alive_ms}: ${notice_ms}`)
      assert.match(noticed.reason, /dead|does not answer/)
      live.close()
    }
  })

  test(`it is back 5 s after the line is (${transport})`, async () => {
    let worst_ms = 0
    for (let away_ms = 500; away_ms <= 150_000; away_ms += 3_100) {
      const server = good()
      const { network, clock, live, values } = visit(server, { transport })
      await clock.pass(20_000)
      network.isDead = true
      await clock.pass(45_000 + away_ms)
      server.seq += 1
      network.isDead = false
      const since_ms = clock.now_ms
      while (values.at(-1) !== server.seq && clock.now_ms < since_ms + 30_000) await clock.pass(100)
      worst_ms = Math.max(worst_ms, clock.now_ms - since_ms)
      live.close()
    }
    assert.ok(worst_ms <= 5_000, `${worst_ms} ms`)
  })
}
