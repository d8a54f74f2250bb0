'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const page = document.getElementById('page');
const tip = document.getElementById('tip');

// Text goes into the page by textContent only: programs print what they like.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  fill(node, attributes, children);
  return node;
}
function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  fill(node, attributes, children);
  return node;
}
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'tip') explain(node, value);
    else if (name === 'click') node.addEventListener('click', value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
}
function explain(node, text) {
  if (typeof text === 'string') node.setAttribute('aria-label', text);
  const show = (event) => {
    tip.textContent = typeof text === 'function' ? text(event) : text;
    tip.style.display = tip.textContent ? 'block' : 'none';
    tip.style.left = Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 4) + 'px';
    tip.style.top = event.clientY + 16 + 'px';
  };
  node.addEventListener('pointermove', show);
  node.addEventListener('pointerdown', show);
  node.addEventListener('pointerleave', () => { tip.style.display = 'none'; });
}
function section(title, ...children) {
  const id = title.toLowerCase().replace(/[^a-z]+/g, '-');
  page.append(make('section', {id}, make('h2', {}, title), ...children));
}
const soft = (text) => make('p', {class: 'soft'}, text);

function seconds(value) {
  if (value === null || value === undefined) return '–';
  if (value === 0) return '0';
  if (value < 1e-3) return (value * 1e6).toFixed(0) + ' µs';
  if (value < 1) return (value * 1e3).toPrecision(3) + ' ms';
  if (value < 60) return value.toPrecision(3) + ' s';
  const whole = Math.round(value);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const out = [];
  let rest = whole;
  for (const [unit, name] of parts) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count > 0 && out.length < 2) out.push(count + ' ' + name);
  }
  return out.join(' ');
}
function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; ++unit; }
  return (value < 10 && unit > 0 ? value.toPrecision(2) : Math.round(value)) + ' ' + units[unit];
}
const percent = (share) => (100 * share).toFixed(share > 0.0995 ? 1 : 2) + ' %';

// "0,2-5" -> [0, 2, 3, 4, 5]
function ranksIn(words) {
  return String(words).split(',').filter((part) => part !== '').flatMap((part) => {
    const [first, last = first] = part.split('-').map(Number);
    return Array.from({length: Math.min(last - first, 1 << 20) + 1}, (unused, i) => first + i);
  });
}
// [0, 2, 3, 4, 5] -> "0, 2-5"
function rankWords(ranks) {
  const out = [];
  for (const rank of [...ranks].sort((a, b) => a - b)) {
    const last = out[out.length - 1];
    if (last && last[1] === rank - 1) last[1] = rank;
    else out.push([rank, rank]);
  }
  return out.map(([a, b]) => (a === b ? a : a + '-' + b)).join(', ');
}
function table(headings, rows, numbers = []) {
  const cell = (tag) => (value, i) => make(tag, numbers.includes(i) ? {class: 'n'} : {}, String(value));
  return make('div', {class: 'wide'}, make('table', {},
      make('thead', {}, make('tr', {}, ...headings.map(cell('th')))),
      make('tbody', {}, ...rows.map((row) => make('tr', {}, ...row.map(cell('td')))))));
}
function legend(entries) {
  return make('div', {class: 'key'}, ...entries.map(([colour, text]) =>
      make('span', {}, make('i', {style: `background:var(--${colour})`}), text)));
}

// -- Time axes: seconds since the job's first event

const events = data.events || [];
const begin = events.length ? events[0].monotonic : 0;
const at = (event) => event.monotonic - begin;
const series = data.series;
const end = Math.max(data.job.ran_s || 0, events.length ? at(events[events.length - 1]) : 0,
    series && series.t.length ? series.t[series.t.length - 1] : 0, 1e-3);
const width = Math.max(320, Math.min(1120, document.documentElement.clientWidth - 32));
const left = 52;
const right = 8;
const x = (time) => left + (width - left - right) * Math.min(1, Math.max(0, time / end));

function niceSteps(most, count) {
  const rough = most / count;
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough);
}
function timeAxis(y) {
  const group = draw('g');
  const step = niceSteps(end, width < 500 ? 4 : 8);
  for (let time = 0; time <= end * 1.0001; time += step) {
    group.append(draw('line', {x1: x(time), x2: x(time), y1: y, y2: y + 4, stroke: 'var(--line)'}),
        draw('text', {x: x(time), y: y + 15, 'text-anchor': time === 0 ? 'start' : 'middle'}, seconds(time)));
  }
  return group;
}
function restartMarks(y1, y2) {
  return draw('g', {}, ...events.filter((e) => e.event === 'restart' || e.event === 'failure').map((e) =>
      draw('line', {class: 'mark', x1: x(at(e)), x2: x(at(e)), y1, y2, tip: eventWords(e)})));
}
function eventWords(event) {
  const known = ['time', 'monotonic', 'job', 'event'];
  const rest = Object.entries(event).filter(([name, value]) => !known.includes(name) && value !== null).map(([name, value]) =>
      name.replace(/_/g, ' ') + ' ' + value);
  return event.event.replace(/_/g, ' ') + (rest.length ? ': ' + rest.join(', ') : '');
}

// -- Parts of the page

function summary() {
  const job = data.job;
  document.title = job.program + ' – dlaunch report';
  page.append(make('h1', {}, job.program + ' ', make('span', {class: 'outcome ' + job.outcome}, job.outcome)));
  page.append(soft([job.id && 'job ' + job.id, job.started, job.hosts.length + (job.hosts.length === 1 ? ' host' : ' hosts'),
    job.outcome === 'running' ? null : 'exit code ' + job.exit_code].filter(Boolean).join(' · ')));
  const costs = data.goodput && data.goodput.costs_most;
  const words = data.report && data.report.summary;
  if (words && !(costs && words.startsWith(costs))) page.append(make('p', {}, words));
  if (costs) page.append(make('p', {}, costs));
  const count = (name) => events.filter((e) => e.event === name).length;
  const figures = [['workers', job.size], ['time', seconds(job.ran_s)],
    ['goodput', data.goodput ? percent(data.goodput.goodput) : '–'], ['rounds', count('round')],
    ['failures', count('failure')], ['restarts', count('restart')], ['commits', events.filter((e) => e.event === 'commit')
        .reduce((sum, e) => sum + (e.commits || 1), 0)]];
  page.append(make('div', {class: 'figures'}, ...figures.map(([name, value]) =>
      make('div', {}, make('b', {}, String(value)), name))));
  for (const note of data.notes) page.append(soft(note));
}

const accounts = [['compute', 'compute'], ['transfer', 'transfer'], ['waiting', 'waiting'], ['start', 'start'],
  ['recovery', 'recovery'], ['lost_work', 'lost work']];
function goodput() {
  const good = data.goodput;
  if (!good || !good.rank_seconds) return section('Goodput', soft('This run has no ledger of its time.'));
  const parts = accounts.map(([key, name]) => [key, name, (good[key + '_s'] || 0) / good.rank_seconds])
      .filter(([, , share]) => share > 0);
  const bar = make('div', {class: 'bar'}, ...parts.map(([key, name, share]) =>
      make('div', {style: `width:${100 * share}%;background:var(--${key})`, tip: name + ' ' + percent(share)})));
  const costs = (good.culprits || []).filter((cost) => cost.share >= 1e-4).slice(0, 16).map((cost) => {
    const causes = Object.entries(cost.waiting_s).map(([cause, time]) => [`waits (${cause})`, time]);
    causes.push(['recovery', cost.recovery_s], ['lost work', cost.lost_work_s]);
    const rank = cost.host ? `${cost.rank} (${cost.host})` : cost.rank;
    return [cost.rank === null ? `all of ${cost.host}` : rank, seconds(cost.s), percent(cost.share),
      causes.filter(([, time]) => time > 0).map(([cause, time]) => cause + ' ' + seconds(time)).join(', ')];
  });
  section('Goodput', soft('Where the time of all ranks went, together ' + seconds(good.rank_seconds) + '.'), bar,
      legend(parts.map(([key, name, share]) => [key, name + ' ' + percent(share)])),
      costs.length ? table(['rank or busy host', 'cost the job', 'share', 'by'], costs, [1, 2]) :
        soft(good.sees_waits === false ? 'The program does not use libdlring: compute includes all waits.' :
          'No rank cost the others time.'));
}

// Of many ranks only those that waited most.
function rankTimes() {
  const all = data.goodput && data.goodput.ranks || [];
  if (!all.length) return;
  const sum = (list) => list.reduce((time, part) => time + part.s, 0);
  const most = 64;
  const ranks = [...all].sort((a, b) => sum(b.waiting) - sum(a.waiting)).slice(0, most).sort((a, b) => a.rank - b.rank);
  const longest = Math.max(...all.map((rank) => rank.wall_s), 1e-9);
  const row = Math.max(6, Math.min(18, Math.floor(480 / ranks.length)));
  const every = Math.ceil(14 / row);
  const svg = draw('svg', {viewBox: `0 0 ${width} ${row * ranks.length}`, role: 'img', 'aria-label': 'what each rank did with its time'});
  const drawn = new Set();
  ranks.forEach((rank, r) => {
    if (r % every === 0) svg.append(draw('text', {x: left - 6, y: r * row + row / 2 + 4, 'text-anchor': 'end'}, rank.rank));
    let from = left;
    for (const [key, name] of accounts) {
      const parts = rank[key];
      const time = Array.isArray(parts) ? sum(parts) : rank[key + '_s'];
      if (!(time > 0)) continue;
      drawn.add(key);
      const long = (width - left - right) * time / longest;
      svg.append(draw('rect', {x: from, y: r * row, width: long, height: row - 1, fill: `var(--${key})`,
        tip: `rank ${rank.rank}: ${name} ${seconds(time)}, ${percent(time / rank.wall_s)} of its ${seconds(rank.wall_s)}` + dueWords(key, parts)}));
      from += long;
    }
  });
  section('Time of each rank', soft((all.length > most ? `The ${most} of ${all.length} ranks that waited most. ` : '') +
      'Each bar is the time of a rank in the job.'),
      legend(accounts.filter(([key]) => drawn.has(key)).map(([key, name]) => [key, name])), make('figure', {}, svg));
}
// The ranks to which most of that time is due: "; for rank 2 (compute) 3.10 s".
function dueWords(key, parts) {
  if (!Array.isArray(parts)) return '';
  const known = parts.filter((part) => part.rank !== null && part.s > 0).sort((a, b) => b.s - a.s).slice(0, 3);
  const word = key === 'waiting' ? 'for' : 'by the failure of';
  return known.map((part) => `; ${word} rank ${part.rank}${part.cause ? ` (${causeNames[part.cause] || part.cause})` : ''} ${seconds(part.s)}`).join('');
}

function stepTimes() {
  if (!series || !series.steps.t.length) return;
  const height = 200;
  const bottom = height - 22;
  const values = series.steps.s;
  const most = Math.max(...values, 1e-9);
  const step = niceSteps(most, 4);
  const top = Math.ceil(most / step) * step;
  const y = (value) => 8 + (bottom - 8) * (1 - value / top);
  const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'step time over the time of the job'});
  for (let value = 0; value <= top * 1.0001; value += step) {
    svg.append(draw('line', {x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: 'var(--line)'}),
        draw('text', {x: left - 6, y: y(value) + 4, 'text-anchor': 'end'}, seconds(value)));
  }
  // The line breaks where a round ended.
  const breaks = events.filter((e) => e.event === 'round').map(at);
  let path = '';
  series.steps.t.forEach((time, i) => {
    const broken = i === 0 || breaks.some((b) => b > series.steps.t[i - 1] && b <= time);
    path += (broken ? 'M' : 'L') + x(time).toFixed(1) + ' ' + y(values[i]).toFixed(1);
  });
  svg.append(restartMarks(8, bottom), draw('path', {d: path, fill: 'none', stroke: 'var(--compute)', 'stroke-width': 1.5}),
      timeAxis(bottom));
  section('Step time', soft(series.steps.what + '; dashed lines are failures and restarts.'), make('figure', {}, svg));
}

const causeNames = {compute: 'compute', input: 'input', gc: 'GC', link: 'link', host: 'host'};
const causeWords = {compute: 'its compute', input: 'its input', gc: 'its garbage collector', link: 'its network link', host: 'its busy host'};
const causeOf = (rank, view, i) => series.causes[rank[view + '_cause'][i]] || 'unknown';
function heatMap() {
  if (!series || !series.t.length || !series.ranks.length) return;
  const caption = soft('');
  const key = make('div');
  const figure = make('figure');
  const views = {
    caused: ['the others waited for it', 'Each row is a rank. The stronger a cell, the longer the other ranks waited for this one; the colour is the main cause. A straggler is a strong row.'],
    waiting: ['it waited', 'Each row is a rank. The stronger a cell, the longer this rank waited for others; the colour is the main cause. A straggler is a pale row among strong ones.'],
  };
  const buttons = Object.entries(views).map(([view, [name]]) => make('button', {click: () => show(view)}, name));
  function show(view) {
    caption.textContent = views[view][1];
    buttons.forEach((button, i) => button.setAttribute('aria-pressed', Object.keys(views)[i] === view));
    const seen = new Set();
    figure.replaceChildren(heat(view, seen));
    key.replaceChildren(legend([...series.causes, 'unknown'].filter((cause) => seen.has(cause)).map((cause) =>
        ['cause-' + cause, causeNames[cause] || 'cause not known'])));
  }
  section('Waiting, by rank and time', make('div', {class: 'key'}, ...buttons), caption, key, figure);
  show('caused');
}
// Adds the causes that it shows to `seen`.
function heat(view, seen) {
  const ranks = series.ranks;
  const row = Math.max(4, Math.min(18, Math.floor(360 / ranks.length)));
  const height = row * ranks.length + 22;
  const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'waiting by rank and time'});
  // A rank can hold up all others at once.
  const limit = view === 'caused' ? Math.max(1, ranks.length - 1) : 1;
  const every = Math.ceil(14 / row);
  ranks.forEach((rank, r) => {
    if (r % every === 0) svg.append(draw('text', {x: left - 6, y: r * row + row / 2 + 4, 'text-anchor': 'end'}, rank.rank));
    svg.append(draw('rect', {x: left, y: r * row, width: width - left - right, height: row - 1, fill: 'var(--card)'}));
    series.t.forEach((time, i) => {
      const part = rank[view][i] / series.dt[i] / limit;
      if (!(part > 0.005)) return;
      const from = x(time - series.dt[i]);
      const cause = causeOf(rank, view, i);
      seen.add(cause);
      svg.append(draw('rect', {x: from, y: r * row, width: Math.max(1, x(time) - from), height: row - 1,
        fill: `var(--cause-${cause})`, 'fill-opacity': Math.min(1, 0.2 + 0.8 * Math.sqrt(part)),
        tip: waitWords(view, rank, i, Math.min(1, part), cause)}));
    });
  });
  svg.append(restartMarks(0, height - 22), timeAxis(height - 22));
  return svg;
}

function waitWords(view, rank, i, part, cause) {
  const because = causeWords[cause] ? `, mostly because of ${causeWords[cause]}` : '';
  if (view === 'caused') {
    return `${seconds(series.t[i])}: the others waited for rank ${rank.rank} ${percent(part)} of the time${because}`;
  }
  const culprit = rank.waited_for[i];
  return `${seconds(series.t[i])}: rank ${rank.rank} waited ${percent(part)} of the time` +
    (culprit >= 0 ? `, mostly for rank ${culprit}` : '') + because;
}

// What the limit is, and what it leaves out.
function limitInWords() {
  const limits = data.limits;
  if (!data.bandwidth.some((b) => b.limit)) return '';
  if (limits.hosts > 1) {
    return ` The limit is the speed that the kernel reports for ${limits.interface} of the leader's host: the network may ` +
      'carry less, and calls of few bytes take the time of their messages.';
  }
  return ` The limit is what one core copies in so large pieces while ${limits.copiers} do, measured after the job: each rank ` +
    'moves its data once at least. Calls of few bytes take the time of their messages. A reduction writes less than a copy, ' +
    'and may exceed the limit.';
}
function bandwidth() {
  if (!data.bandwidth || !data.bandwidth.length) return;
  const rate = (bytesPerSecond) => (bytesPerSecond / 1e9).toPrecision(3) + ' GB/s';
  const bar = (share) => '▇'.repeat(Math.round(20 * Math.min(1, share)));
  section('Bandwidth, by size', soft('busbw as nccl-tests defines it, with the time that ranks wait for each other: in all ' +
      'calls of all ranks, and in the best second, or longer in a job of many minutes. Looks come once a second, so that the ' +
      'last calls of a round are missing.' + limitInWords()),
    table(['collective', 'up to', 'calls', 'busbw', 'best', 'limit', 'best of the limit', ''], data.bandwidth.map((b) =>
      [b.collective, b.size, b.calls, rate(b.busbw), rate(b.best), b.limit ? rate(b.limit) : 'not known',
        b.limit ? percent(b.best / b.limit) : '', b.limit ? bar(b.best / b.limit) : '']), [1, 2, 3, 4, 5, 6]));
}

// Intervals in which each rank had a process, from the events.
function lives() {
  const open = new Map();
  const all = [];
  const close = (rank, time, how) => {
    if (!open.has(rank)) return;
    all.push({...open.get(rank), rank, to: time, how});
    open.delete(rank);
  };
  for (const event of events) {
    if (event.event === 'start') for (const rank of ranksIn(event.ranks)) {
      close(rank, at(event), 'replaced');
      open.set(rank, {from: at(event), round: event.round});
    }
    if (event.event === 'round') for (const rank of [...open.keys()]) {
      const life = open.get(rank);
      if (rank >= event.size) { close(rank, at(event), 'left'); continue; }
      if (life.round === event.round) continue;
      close(rank, at(event), 'round');
      open.set(rank, {from: at(event), round: event.round});
    }
    if (event.event === 'exit' || event.event === 'failure') close(event.rank, at(event), event.event);
    if (event.event === 'host_lost') for (const rank of ranksIn(event.ranks)) close(rank, at(event), 'host lost');
  }
  for (const rank of [...open.keys()]) close(rank, end, 'running');
  return all;
}
function rounds() {
  const bars = lives();
  if (!bars.length) return;
  const ranks = [...new Set(bars.map((bar) => bar.rank))].sort((a, b) => a - b);
  const row = Math.max(4, Math.min(18, Math.floor(360 / ranks.length)));
  const height = row * ranks.length + 22;
  const svg = draw('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'the ranks of each round over time'});
  const every = Math.ceil(14 / row);
  ranks.forEach((rank, r) => {
    if (r % every === 0) svg.append(draw('text', {x: left - 6, y: r * row + row / 2 + 4, 'text-anchor': 'end'}, rank));
  });
  for (const bar of bars) {
    const y = ranks.indexOf(bar.rank) * row;
    const bad = bar.how === 'failure' || bar.how === 'host lost';
    svg.append(draw('rect', {x: x(bar.from), y, width: Math.max(1, x(bar.to) - x(bar.from) - 0.5), height: row - 1,
      fill: bar.round % 2 ? 'var(--compute)' : 'var(--transfer)',
      tip: `rank ${bar.rank}, round ${bar.round}: ${seconds(bar.from)} to ${seconds(bar.to)} (${bar.how})`}));
    if (bad) svg.append(draw('circle', {cx: x(bar.to), cy: y + row / 2, r: Math.min(5, row / 2 + 1), fill: 'var(--bad)', tip: `rank ${bar.rank}: ${bar.how}`}));
  }
  svg.append(timeAxis(height - 22));
  const rows = events.filter((e) => e.event === 'round').map((e) =>
      [e.round, seconds(at(e)), e.size, e.without_s === null || e.without_s === undefined ? '' : seconds(e.without_s)]);
  section('Rounds', soft('Each row is a rank, each colour change a new round; dots are failures.'), make('figure', {}, svg),
      make('details', {}, make('summary', {}, 'all rounds'), table(['round', 'at', 'workers', 'time without a round'], rows, [0, 2])));
}

function worker(of, open) {
  const how = of.hung ? 'hung' : of.signal ? of.signal_name || 'signal ' + of.signal : 'exit code ' + of.exit_code;
  const parts = [];
  if (of.hung) parts.push(make('p', {}, of.hung));
  if (of.out_of_memory) parts.push(make('p', {}, of.out_of_memory));
  if (of.stack) parts.push(make('p', {class: 'soft'}, 'its stack'), make('pre', {}, [].concat(of.stack).join('\n')));
  if (of.traceback) parts.push(make('p', {class: 'soft'}, 'its traceback'), make('pre', {}, of.traceback.join('\n')));
  if (of.stderr_tail) parts.push(make('p', {class: 'soft'}, 'its last lines on stderr'), make('pre', {}, of.stderr_tail.join('\n')));
  if (of.last_operations) parts.push(make('p', {class: 'soft'}, 'its last collectives'), table(
      ['operation', 'state', 'began before the end of the rank', 'was over before that end'],
      of.last_operations.map((op) => [op.operation, op.state, seconds(op.started_before_s), seconds(op.ended_before_s)]), [2, 3]));
  return make('details', open ? {open: ''} : {}, make('summary', {}, `rank ${of.rank} on ${of.host}, pid ${of.pid}: ${how} (${of.role.replace(/_/g, ' ')})`), ...parts);
}
function causes() {
  const report = data.report;
  if (!report || report.end === 'succeeded') return;
  const children = [];
  if (report.text) children.push(make('pre', {}, report.text.join('\n')));
  for (const group of report.stacks || []) {
    children.push(make('details', {open: ''}, make('summary', {}, `ranks ${rankWords(group.ranks)}: ${group.place || 'not known'}`),
        make('pre', {}, (group.frames || []).join('\n'))));
  }
  if (report.root_cause) children.push(worker(report.root_cause, true));
  for (const other of report.others.slice(0, 64)) children.push(worker(other, false));
  section('Why it failed', ...children);
}

function eventTable() {
  if (!events.length) return;
  const most = 500;
  const body = make('div', {class: 'long'});
  const show = (filter) => {
    const words = filter.toLowerCase();
    const rows = events.map((e) => [seconds(at(e)), e.event.replace(/_/g, ' '), eventWords(e).replace(/^[^:]*:? ?/, '')])
        .filter((row) => row.join(' ').toLowerCase().includes(words));
    body.replaceChildren(table(['at', 'event', ''], rows.slice(0, most)),
        rows.length > most ? soft(`${rows.length - most} more; filter them`) : '');
  };
  const input = make('input', {type: 'search', placeholder: 'filter: failure, rank 3 …', 'aria-label': 'filter the events'});
  input.addEventListener('input', () => show(input.value));
  section('Events', input, body);
  show('');
}

function environment() {
  if (!data.environment || !data.environment.length) return;
  section('Environment', table(['', ''], data.environment));
}

summary();
causes();
goodput();
rankTimes();
stepTimes();
heatMap();
bandwidth();
rounds();
eventTable();
environment();
