/** The runtimes that the client is for: each runs `reader.js`, and hands on what it reports. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const here = fileURLToPath(new URL('.', import.meta.url))
const reader = join(here, 'reader.js')

/** Where a program is, or undefined. */
export function find(...names) {
  const folders = `${process.env.PATH}${delimiter}/usr/sbin`.split(delimiter)
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync)
}

/** Why `program` cannot be had, or false. */
export const lacks = (...names) => !find(...names) && `there is no ${names.join(' or ')} here`

const flag = '--experimental-websocket'
const nodeFlags = () => (
  globalThis.WebSocket || spawnSync(process.execPath, [flag, '-e', '']).status ? [] : [flag]
)

/** What starts each, with the task as its last argument. */
const PROCESSES = {
  node: { names: [], command: () => [process.execPath, ...nodeFlags(), reader] },
  deno: { names: ['deno'], command: () => [find('deno'), 'run', '--quiet', '-A', reader] },
  bun: { names: ['bun'], command: () => [find('bun'), reader] },
}
const CHROMIUM = ['chromium', 'chromium-browser', 'google-chrome']

export const RUNTIMES = [...Object.keys(PROCESSES), 'chromium']

export const missing = (runtime) => (
  runtime === 'chromium' ? lacks(...CHROMIUM)
    : PROCESSES[runtime].names.length > 0 && lacks(...PROCESSES[runtime].names)
)

/** Starts a reader; `reports` grows, each with the time it came at. */
export async function start(runtime, task) {
  return runtime === 'chromium' ? page(task) : program(runtime, task)
}

const received = (reports, line) => reports.push({ ...JSON.parse(line), at_ms: performance.now() })

async function program(runtime, task) {
  const [file, ...args] = [...PROCESSES[runtime].command(), JSON.stringify(task)]
  const child = spawn(file, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true })
  const reports = []
  const errors = []
  createInterface(child.stdout).on('line', (line) => received(reports, line))
  child.stderr.setEncoding('utf8').on('data', (text) => errors.push(text))
  return { reports, errors, stop: () => end(child) }
}

/** Ends a process and those that it has started. */
async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return
  process.kill(-child.pid, 'SIGKILL')
  await once(child, 'exit')
}

/** A page of an origin of its own, in a browser of its own. */
async function page(task) {
  const reports = []
  const server = createServer(async (request, response) => {
    const name = request.url.split('?')[0]
    if (name === '/report') {
      let line = ''
      for await (const part of request.setEncoding('utf8')) line += part
      received(reports, line)
      return response.writeHead(204).end()
    }
    const files = { '/stentor.js': '../stentor.js', '/test/reader.js': 'reader.js' }
    if (files[name]) {
      response.writeHead(200, { 'Content-Type': 'text/javascript' })
      return response.end(readFileSync(join(here, files[name])))
    }
    response.writeHead(200, { 'Content-Type': 'text/html' })
    response.end('<!doctype html><script type="module" src="/test/reader.js"></script>')
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const profile = mkdtempSync(join(tmpdir(), 'stentor-chromium-'))
  const address = `http://127.0.0.1:${server.address().port}/`
  const child = spawn(find(...CHROMIUM), [
    '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--proxy-server=direct://', `--user-data-dir=${profile}`, '--remote-debugging-port=0',
    `${address}?${encodeURIComponent(JSON.stringify(task))}`,
  ], { stdio: 'ignore', detached: true })
  const stop = async () => {
    await end(child)
    server.closeAllConnections()
    server.close()
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 })
  }
  return { reports, errors: [], stop }
}
