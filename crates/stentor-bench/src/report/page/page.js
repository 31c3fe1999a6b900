// Draws the charts of a report from its JSON, by uPlot. A chart that would show nothing is left
// out. All figures are in the tables of the page, too.
'use strict'
{
  const report = JSON.parse(document.querySelector('#report').textContent)
  const place = document.querySelector('.charts')
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
  const colors = ['--s1', '--s2', '--s3', '--ink', '--soft', '--bad'].map(color)
  const dashes = [[], [7, 3], [2, 3]]

  const scaled = (value, units) => {
    const [size, unit] = units.find(([size]) => Math.abs(value) >= size) ?? units.at(-1)
    return `${+(value / size).toPrecision(3)} ${unit}`.trim()
  }
  const time = us => scaled(us, [[1e6, 's'], [1e3, 'ms'], [1, 'µs']])
  const bytes = value =>
    scaled(value, [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']])
  const count = value => scaled(value, [[1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']])
  const percentile = rarity => `${+(100 - 100 / rarity).toPrecision(7)} %`

  // A chart: `data` are the values of x and those of each line, `names` explain the lines.
  function chart({ title, about, data, names, x, y, logarithmic }) {
    const known = data.slice(1).flat().filter(value => value !== null && value !== undefined)
    if (data[0].length < 2 || !known.some(value => value > 0)) return
    const figure = document.createElement('figure')
    const caption = document.createElement('figcaption')
    const name = document.createElement('b')
    name.textContent = title
    caption.append(name, ` ${about}`)
    figure.append(caption)
    place.append(figure)
    const axis = show => ({
      stroke: color('--soft'),
      grid: { stroke: color('--rule'), width: 1 },
      ticks: { show: false },
      values: (_, ticks) => ticks.map(tick => (tick === null ? '' : tick === 0 ? '0' : show(tick))),
    })
    const fromZero = (_, low, high) => [0, Math.max(high * 1.05, 1)]
    const scale = logarithmic ? { distr: 3 } : {}
    const height = logarithmic ? scale : { range: fromZero }
    const plot = new uPlot({
      width: figure.clientWidth,
      height: 220,
      padding: [12, 28, 0, 0],
      scales: { x: { time: false, ...scale }, y: height },
      axes: [{ ...axis(x), size: 30 }, { ...axis(y), size: 70 }],
      series: [
        { label: 'at', value: (_, value) => (value === null ? '' : x(value)) },
        ...names.map((label, nth) => ({
          label,
          stroke: colors[nth % colors.length],
          dash: dashes[nth % dashes.length],
          width: 2,
          points: { show: false },
          spanGaps: true,
          value: (_, value) => (value === null || value === undefined ? '' : y(value)),
        })),
      ],
    }, data, figure)
    plot.root.setAttribute('role', 'img')
    plot.root.setAttribute('aria-label', `${title} ${about}: at most ${y(Math.max(...known))}.`)
    const resize = () => plot.setSize({ width: figure.clientWidth, height: 220 })
    new ResizeObserver(resize).observe(figure)
  }

  function overTime(title, about, names, show, ...values) {
    const isKnown = point => values.every(value => value(point) !== undefined)
    const points = report.timeline.filter(isKnown)
    const data = [points.map(point => point.at_s), ...values.map(value => points.map(value))]
    const changes = data.slice(1).some(line => new Set(line).size > 1)
    if (changes) chart({ title, about, data, names, x: s => time(s * 1e6), y: show })
  }

  // Percentiles: to the right an event is ten times as rare with each step.
  function percentiles(title, latencies) {
    const measured = latencies.filter(([, latency]) => latency?.count >= 10)
    if (measured.length === 0) return
    const tables = measured.map(([, { count, curve }]) => {
      const values = new Map()
      for (const [percent, us] of curve) {
        values.set(Math.min(1 / (1 - percent / 100), count), Math.max(us, 1))
      }
      return [[...values.keys()], [...values.values()]]
    })
    chart({
      title,
      about: 'by percentile, both axes logarithmic',
      data: tables.length > 1 ? uPlot.join(tables) : tables[0],
      names: measured.map(([name]) => name),
      x: percentile,
      y: time,
      logarithmic: true,
    })
  }

  const { requests, delivery, bystanders, connections } = report
  const listeners = bystanders?.listeners
  const periods = ['before', 'during', 'after', 'timeout']
  const what = delivery ? 'Deliveries' : listeners ? 'Answers and deliveries' : 'Answers'
  overTime(`${what} per second`, 'over time', [`${what.toLowerCase()}/s`], count, p => p.per_second)
  overTime('Errors', 'so far, over time', ['errors'], count, p => p.errors)
  percentiles('Latency', [
    [requests?.open_loop ? 'from when due' : 'request', requests?.latency],
    ['delivery', delivery?.latency],
    ['publish', delivery?.publish],
    ...periods.map(name => [name, bystanders?.[name]]),
  ])
  percentiles('News to readers', periods.map(name => [name, listeners?.[name]]))
  const messages = delivery?.messages ?? []
  chart({
    title: 'From publishing to the readers',
    about: 'for each message in turn',
    data: ['number', 'last_us', 'first_us'].map(name => messages.map(message => message[name])),
    names: ['until the last reader has it', 'until the first has it'],
    x: String,
    y: time,
  })
  percentiles('Opening', [
    ['connect', connections.connect],
    ['first answer', connections.first_answer],
  ])
  overTime('Open connections', 'over time', ['open'], count, p => p.connections)
  const resident = point => point.process_bytes
  overTime('Memory of the process', 'resident, over time', ['resident'], bytes, resident)
}
