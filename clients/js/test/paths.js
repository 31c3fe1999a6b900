/** What stands between a client and its server. Each compresses all that it may. */

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { find, lacks } from './runtimes.js'

const MODULES = '/usr/lib/apache2/modules'

const nginx = (port, to, folder) => `
daemon off; master_process off; pid ${folder}/pid; error_log ${folder}/log;
events {}
http {
  access_log off; gzip on; gzip_types *; gzip_proxied any; gzip_min_length 1;
  client_body_temp_path ${folder}/a; proxy_temp_path ${folder}/b; fastcgi_temp_path ${folder}/c;
  uwsgi_temp_path ${folder}/d; scgi_temp_path ${folder}/e;
  map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://127.0.0.1:${to}; proxy_http_version 1.1; proxy_read_timeout 75s;
      proxy_set_header Host $http_host; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }
}`

const apache = (port, to, folder) => `
ServerRoot ${folder}
ServerName localhost
PidFile ${folder}/pid
ErrorLog ${folder}/log
Listen 127.0.0.1:${port}
${['mpm_event', 'authz_core', 'filter', 'deflate', 'proxy', 'proxy_http', 'proxy_wstunnel']
  .filter((name) => existsSync(`${MODULES}/mod_${name}.so`))
  .map((name) => `LoadModule ${name}_module ${MODULES}/mod_${name}.so`).join('\n')}
SetOutputFilter DEFLATE
ProxyPreserveHost On
ProxyPass / http://127.0.0.1:${to}/ upgrade=websocket retry=0 disablereuse=on
`

const haproxy = (port, to) => `
global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 75s
  timeout tunnel 75s
frontend public
  bind 127.0.0.1:${port}
  compression algo gzip
  default_backend stentor
backend stentor
  server stentor 127.0.0.1:${to}
`

const hasExpress = () => {
  try {
    const { resolve } = createRequire(fileURLToPath(new URL('express.cjs', import.meta.url)))
    for (const name of ['express', 'compression', 'http-proxy-middleware']) resolve(name)
    return true
  } catch {
    return false
  }
}

/** Each has a reason to be skipped, and a way to be started. */
const PROXIES = {
  nginx: { missing: lacks('nginx'), text: nginx, command: (file) => [find('nginx'), '-c', file] },
  apache: {
    missing: lacks('apache2'),
    text: apache,
    command: (file) => [find('apache2'), '-f', file, '-DFOREGROUND'],
  },
  haproxy: {
    missing: lacks('haproxy'),
    text: haproxy,
    command: (file) => [find('haproxy'), '-db', '-f', file],
  },
  express: {
    missing: !hasExpress() && 'NODE_PATH leads to no express, compression, http-proxy-middleware',
    text: (port, to) => JSON.stringify({ port, to }),
    command: (file) => [
      process.execPath, fileURLToPath(new URL('express.cjs', import.meta.url)), file,
    ],
  },
}

export const PATHS = ['direct', ...Object.keys(PROXIES)]

export const missing = (path) => path !== 'direct' && PROXIES[path].missing

/** Leads to the server at `url`; the result has a `url` of its own. */
export async function lead(path, url) {
  if (path === 'direct') return { url, stop: () => {} }
  const port = await freePort()
  const folder = mkdtempSync(join(tmpdir(), 'stentor-path-'))
  const file = join(folder, 'configuration')
  writeFileSync(file, PROXIES[path].text(port, new URL(url).port, folder))
  mkdirSync(join(folder, 'logs'))
  const [program, ...args] = PROXIES[path].command(file)
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let log = ''
  child.stderr.setEncoding('utf8').on('data', (text) => { log += text })
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM')
      const kill = setTimeout(() => child.kill('SIGKILL'), 2_000)
      await once(child, 'exit')
      clearTimeout(kill)
    }
    rmSync(folder, { recursive: true, force: true, maxRetries: 10 })
  }
  for (let tries = 0; !(await accepts(port)); tries++) {
    if (tries < 200 && child.exitCode === null) continue
    await stop()
    throw new Error(`${path} does not start: ${log}`)
  }
  return { url: `http://127.0.0.1:${port}`, stop }
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

async function accepts(port) {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 25))
    return false
  } finally {
    socket.destroy()
  }
}
