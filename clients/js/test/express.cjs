/** Express with compression before a server, as development servers have it. */

const { readFileSync } = require('node:fs')

function serve({ port, to }) {
  const compression = require('compression')
  const express = require('express')
  const { createProxyMiddleware } = require('http-proxy-middleware')
  const app = express()
  app.use(compression({ threshold: 0 }))
  const proxy = createProxyMiddleware({ target: `http://127.0.0.1:${to}`, ws: true })
  app.use(proxy)
  const server = app.listen(port, '127.0.0.1')
  server.on('upgrade', proxy.upgrade)
  process.on('uncaughtException', () => {}) // Lines that break are part of the tests.
}

// `node --test` runs every file here.
if (process.argv[2]) serve(JSON.parse(readFileSync(process.argv[2], 'utf8')))
