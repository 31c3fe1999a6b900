/**
 * A program that reads by the client, in whatever runtime: it reports each value, gap and state as
 * a line of JSON. A page gets what to read from its address, a process from its arguments.
 */

import { connect } from '../stentor.js'

const isPage = Boolean(globalThis.document)
const text = isPage ? decodeURIComponent(location.search.slice(1)) : globalThis.process.argv[2]
// `node --test` runs every file here.
const { url, transports, topic } = text ? JSON.parse(text) : { transports: [] }

let sending = Promise.resolve()
function report(what) {
  const line = JSON.stringify(what)
  if (!isPage) return console.log(line)
  // One after the other, so that they arrive in their order.
  sending = sending.then(() => fetch('/report', { method: 'POST', body: line }))
}

for (const transport of transports) {
  try {
    const live = connect(url, { transport })
    live.watch(topic, (value) => report({ transport, value }), {
      onGap: (gap) => report({ transport, gap }),
      onState: ({ state, reason, transport: used }) => report({ transport, state, reason, used }),
    })
  } catch (error) {
    report({ transport, absent: error.message })
  }
}
