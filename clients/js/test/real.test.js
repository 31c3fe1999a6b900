/**
 * The rules of the client with the real server, over real connections. `TEST_BINARY` names the
 * program. Its waits are as long as ever, so the client's are not as short here as elsewhere.
 */

import { test } from 'node:test'
import { cases, open, TRANSPORTS } from './cases.js'
import { RealServer } from './real.js'
import { ending, setPace } from './support.js'

const binary = process.env.TEST_BINARY
setPace(10)

for (const transport of TRANSPORTS) {
  for (const { name, body } of cases) {
    const skip = !binary ? 'TEST_BINARY names no server'
      : transport === 'websocket' && !globalThis.WebSocket && 'this Node has no WebSocket'
    test(`real server: ${name} (${transport})`, { skip }, async () => {
      const server = await ending(new RealServer(binary))
      await body(server, open(server, { transport }), transport)
    })
  }
}
