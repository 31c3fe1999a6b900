/**
 * What the tests share: time that runs faster, and waiting for what must come.
 *
 * The client's own waits are seconds; here they are that many hundredths. Every wait asked for is
 * written down, so that tests look at what was asked and never at a clock.
 */

import { afterEach } from 'node:test'
import { Server } from './server.js'

let faster = 100
const PATIENCE_MS = 10_000
const { setTimeout: real, clearTimeout: clear } = globalThis

/** The waits that were asked for, in milliseconds. */
export const waits = []
const PART_MS = 5

/**
 * A wait has short parts, one after the other. A busy machine makes each of them longer: what is
 * waited for has as many turns to come as on an idle one.
 */
globalThis.setTimeout = (f, ms = 0, ...rest) => {
  waits.push(ms)
  let counts = true
  const begin = (left_ms) => {
    const part_ms = Math.min(left_ms, PART_MS)
    const end = () => (left_ms > part_ms ? begin(left_ms - part_ms) : f(...rest))
    wait.timer = real(end, part_ms)
    if (!counts) wait.timer.unref()
  }
  // `fetch` calls these methods of a timer.
  const wait = {
    unref: () => { counts = false; wait.timer.unref() },
    refresh: () => { clear(wait.timer); begin(ms / faster) },
  }
  begin(ms / faster)
  return wait
}
globalThis.clearTimeout = (wait) => clear(wait?.timer ?? wait)

/** The clock runs as fast as the waits do. */
const clock = performance.now.bind(performance)
let [from_ms, virtual_ms] = [clock(), 0]
performance.now = () => virtual_ms + (clock() - from_ms) * faster

/** For a server that has waits of its own, which do not run faster. */
export const setPace = (n) => {
  virtual_ms = performance.now()
  from_ms = clock()
  faster = n
}

export const sleep = (ms) => new Promise((resolve) => real(resolve, ms))

/** Waits until `probe` is true. */
export async function until(probe, what = probe.toString()) {
  for (let waited_ms = 0; !(await probe()); waited_ms += 2) {
    if (waited_ms > PATIENCE_MS) throw new Error(`It never came: ${what}`)
    await sleep(2)
  }
}

/** Long enough for what must not come. */
export const quiet = () => sleep(40)

const cleanups = []
afterEach(async () => {
  // Connections are younger than their server, and close first.
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
  waits.length = 0
})

/** A server that ends with the test, and is the one WebSockets reach. */
export async function serve() {
  const server = await ending(new Server())
  globalThis.WebSocket = server.webSocket()
  return server
}

/** Starts a server that ends with the test. */
export async function ending(server) {
  cleanups.push(() => server.stop())
  return server.start()
}

/** Ends a connection with the test, even one that failed. */
export function closing(live) {
  cleanups.push(() => {
    live.close()
    return sleep(5)
  })
  return live
}
