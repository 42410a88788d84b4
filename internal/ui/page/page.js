'use strict';
// Everything that a cluster says is put there as text: textContent, and attributes that no script reads.

const $ = id => document.getElementById(id);

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) =>
  put(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

const bytes = n => {
  for (const unit of ['B', 'KiB', 'MiB', 'GiB'])
    if (n < 1024 || unit === 'GiB') return `${n < 10 && unit !== 'B' ? n.toFixed(1) : Math.round(n)} ${unit}`;
    else n /= 1024;
};
const utc = time => new Date(time).toISOString().slice(0, 19).replace('T', ' ') + 'Z';
const second = time => utc(time).replace(' ', 'T');
const ago = time => {
  const gone = Math.max(0, (Date.now() - new Date(time)) / 1000);
  for (const [most, per, unit] of [[120, 1, 's'], [10800, 60, 'm'], [172800, 3600, 'h']])
    if (gone < most) return Math.floor(gone / per) + unit;
  return Math.floor(gone / 86400) + 'd';
};
const count = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`;
const still = matchMedia('(prefers-reduced-motion: reduce)');

async function ask(kind, about) {
  const query = about ? '?' + new URLSearchParams(about) : '';
  const answer = await fetch('api/' + kind + query);
  const told = answer.headers.get('Content-Type') === 'application/json' ? await answer.json()
    : { error: await answer.text() };
  if (told.error) throw new Error(told.error);
  return told.data;
}

// What is shown.
let clusters = [];
let chosen = '';       // key of a cluster
let history = null;    // of that
let at = -1;           // the moment of the history that is shown; -1 for now
let playing = 0;

const key = c => c.namespace + '/' + c.name;
const about = c => ({ namespace: c.namespace, name: c.name });
const current = () => clusters.find(c => key(c) === chosen);
const command = (verb, c, rest = '') => `kubectl quorate ${verb} ${c.name}${rest}${c.flags}`;

// say puts a text there if it is another: what is said to a screen reader is said once.
function say(node, text) { if (node.textContent !== text) node.textContent = text; }

// The clusters, while they are looked at: more often while something is under way.
async function look() {
  let pause = 2000;
  if (!document.hidden) try {
    clusters = await ask('clusters');
    say($('state'), `as of ${new Date().toISOString().slice(11, 19)} UTC`);
    $('trouble').hidden = true;
    if (!current()) choose(clusters.length ? key(clusters[0]) : '');
    list();
    show();
    follow();
    if (clusters.some(c => c.mood !== 'calm')) pause = 1000;
    if (!clusters.length) complain('There is no EtcdCluster here.');
  } catch (error) {
    complain(error instanceof TypeError ? '`kubectl quorate ui` does not answer: has it ended?' : error.message);
    pause = 5000;
  }
  setTimeout(look, pause);
}

function complain(words) {
  say($('trouble'), words);
  $('trouble').hidden = false;
}

function list() {
  const nodes = $('clusters');
  const keys = clusters.map(key).join();
  if (nodes.dataset.keys !== keys) {
    nodes.dataset.keys = keys;
    nodes.replaceChildren(...clusters.map(c => h('li', {}, h('button', { onclick: () => choose(key(c)) },
      h('b', {}, c.name), ' ', h('span', { class: 'chip' }), h('small')))));
  }
  clusters.forEach((c, i) => {
    const button = nodes.children[i].firstChild;
    button.setAttribute('aria-current', key(c) === chosen);
    const chip = button.querySelector('.chip');
    chip.className = 'chip ' + c.mood;
    say(chip, c.status);
    say(button.querySelector('small'), `${c.namespace} · ${c.ready}/${c.voters} ready · ${c.version}`);
  });
}

function choose(next) {
  if (next === chosen) return;
  chosen = next;
  history = null;
  backups.stored = contents.told = null;
  $('one').hidden = !next;
  for (const id of ['explanation', 'backups', 'map']) $(id).hidden = true;
  for (const id of ['explained', 'account', 'note']) say($(id), '');
  say($('nothing'), 'asking …');
  drawing.clear();
  go(-1);
  if (!next) return;
  list();
  show();
  follow();
  backups();
  contents();
}

// The history is asked for when the cluster says something new.
let followed = '', following = false;
async function follow() {
  const c = current();
  if (!c || following || followed === chosen + c.changed) return;
  following = true;
  followed = chosen + c.changed;
  const of = chosen;
  try {
    const told = await ask('history', about(c));
    if (of === chosen) {
      history = told;
      say($('note'), told.note);
      past();
    }
  } catch (error) {
    followed = '';
    if (of === chosen) say($('note'), error.message);
  }
  setTimeout(() => { following = false; }, 2000);
}

// show draws the cluster as it is, or as it was at the moment of the slider.
function show() {
  const now = current();
  if (!now) return;
  const moment = at >= 0 && history ? history.moments[at] : null;
  const c = moment ? moment.cluster : now;
  const members = c.members || [];
  say($('name'), now.name);
  say($('status'), c.status);
  $('status').className = 'chip ' + c.mood;
  say($('facts'), [`namespace ${now.namespace}`, c.members && `${c.ready} of ${c.voters} voters ready`,
    c.version && `etcd ${c.version}`, c.epoch > 1 && `epoch ${c.epoch}`].filter(Boolean).join(' · '));
  say($('words'), c.message);
  const remarks = members.flatMap(m => [...m.alarms, m.message].filter(Boolean).map(words => `${m.name}: ${words}`));
  fill($('attention'), [...c.attention, ...remarks], words => h('li', {}, words));
  drawing.show(c);
  table($('members'), ['Member', 'Role', 'State', 'Database', 'Volume'], members.map(m => [m.name,
    m.leads ? 'leader' : m.role.toLowerCase() || 'no member',
    m.state + (m.restarts ? `, ${count(m.restarts, 'restart')}` : ''),
    m.size ? `${bytes(m.size)}${m.quota ? ' of ' + bytes(m.quota) : ''}` : '–',
    m.volume === 'Bound' ? bytes(m.capacity) : m.volume || '–']));
  say($('moment'), moment ? `${utc(moment.time)}, ${ago(moment.time)} ago` : 'now, as it happens');
  $('live').disabled = at < 0;
  say($('explain'), moment ? 'Explain this moment' : 'Explain what it would do now');
  commands(now, moment);
}

// fill has a node hold these, each made a node, and leaves it alone while they are the same.
function fill(node, items, make) {
  const text = JSON.stringify(items);
  if (node.dataset.has === text) return;
  node.dataset.has = text;
  const was = node.made || new Map();
  node.made = new Map();
  items.forEach((item, i) => {
    let key = JSON.stringify(item);
    while (node.made.has(key)) key += '+';
    node.made.set(key, was.get(key) || make(item, i));
  });
  // What stays is not moved: who is at it with the keyboard stays there.
  const stay = new Set(node.made.values());
  for (const child of [...node.childNodes]) if (!stay.has(child)) child.remove();
  let next = node.firstChild;
  for (const child of stay) {
    if (child === next) next = next.nextSibling;
    else node.insertBefore(child, next);
  }
}

const table = (node, head, rows) => fill(node, [head, ...rows], (row, i) =>
  h('tr', {}, ...row.map(cell => i ? h('td', {}, cell) : h('th', { scope: 'col' }, cell))));

// The drawing: members on a ring, the leader's lines to those who follow it. What moves goes there bit by bit.
const drawing = {
  members: new Map(), hub: null, size: [0, 0], moving: 0,

  clear() {
    $('drawing').replaceChildren();
    this.members.clear();
    this.hub = null;
  },

  show(c) {
    const svg = $('drawing');
    const width = svg.clientWidth || 500;
    const members = c.members || [];
    const height = width < 420 && members.length > 5 ? 430 : 330;
    if (!svg.firstChild) svg.append(s('g'), s('g'), s('text', { class: 'center' }), s('text', { class: 'small' }));
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('aria-label', this.words(c));
    const [lines, nodes, center, under] = svg.children;
    const middle = [width / 2, height / 2 - 8];
    const leader = members.find(m => m.leads);
    put(center, { x: middle[0], y: middle[1] + (leader && members.length === 1 ? 90 : 4) }, []);
    put(under, { x: middle[0], y: middle[1] + (leader && members.length === 1 ? 106 : 20) }, []);
    say(center, c.members ? `${c.ready} of ${c.voters} ready` : 'the members of then are not known');
    say(under, c.members && members.length && !leader ? 'no leader is known' : '');
    const there = new Set();
    members.forEach((m, i) => {
      there.add(m.name);
      const angle = (i / members.length) * 2 * Math.PI - Math.PI / 2;
      const goal = members.length === 1 ? middle
        : [middle[0] + (width / 2 - 74) * Math.cos(angle), middle[1] + (height / 2 - 62) * Math.sin(angle)];
      let one = this.members.get(m.name);
      if (!one) {
        one = { node: this.node(m), line: s('line', { class: 'link off' }), place: goal };
        this.members.set(m.name, one);
        nodes.append(one.node);
        lines.append(one.line);
        requestAnimationFrame(() => requestAnimationFrame(() => one.node.classList.remove('new')));
      }
      if (one.gone) lines.append(one.line);
      one.goal = goal;
      one.gone = false;
      this.paint(one, m, leader);
    });
    for (const [name, one] of this.members) if (!there.has(name) && !one.gone) {
      one.gone = true;
      one.node.classList.add('gone');
      one.line.remove();
      setTimeout(() => { if (one.gone) { one.node.remove(); this.members.delete(name); } }, 600);
    }
    this.leader = leader && this.members.get(leader.name);
    if (!this.moving) this.move();
  },

  words(c) {
    if (!c.members || !c.members.length) return 'No members are known.';
    const is = { Learner: 'is a learner', Spare: 'is a spare', Voter: 'votes' };
    return c.members.map(m => `${m.name} ${m.leads ? 'leads' : is[m.role] || 'is no member'}, ${m.state}`).join('; ') + '.';
  },

  node(m) {
    return s('g', { class: 'member new' }, s('circle', { class: 'body', r: 30 }), s('text', { class: 'in', y: 4 }),
      s('text', { y: 48 }), s('text', { class: 'small state', y: 63 }),
      s('rect', { class: 'disk', x: 37, y: -22, width: 16, height: 44, rx: 4 }),
      s('rect', { class: 'level', x: 39, width: 12, rx: 2 }), s('title'));
  },

  paint(one, m, leader) {
    const [, inside, name, state, disk, level, title] = one.node.children;
    const lost = m.alarms.length > 0 || ['no pod', 'CrashLoopBackOff', 'ImagePullBackOff'].includes(m.state);
    const does = { Learner: 'learns', Spare: 'spare', Voter: 'votes' };
    const learner = m.role === 'Learner' || m.role === 'Spare';
    for (const [kind, is] of Object.entries({ leads: m.leads, learner, none: !m.role, lost,
      away: !m.ready, gone: false })) one.node.classList.toggle(kind, is);
    say(inside, m.leads ? 'leads' : does[m.role] || '–');
    say(name, m.name);
    say(state, m.state);
    const full = m.quota ? Math.min(1, m.size / m.quota) : 0;
    const tall = m.size ? Math.max(2, 40 * full) : 0;
    disk.setAttribute('class', m.volume === 'Bound' ? 'disk' : 'disk none');
    put(level, { y: 20 - tall, height: tall, class: full > .9 ? 'level full' : 'level' }, []);
    say(title, `${m.name}: ${bytes(m.size)}${m.quota ? ' of ' + bytes(m.quota) : ''}; volume ${m.volume || 'none'}`);
    const follows = leader && !m.leads && m.ready && m.role;
    one.line.setAttribute('class', 'link' + (follows ? '' : ' off') + (learner ? ' learner' : ''));
    one.line.style.display = leader && !m.leads && m.role ? '' : 'none';
  },

  move() {
    let rest = 0;
    const toward = (from, to) => from.map((v, i) => {
      rest = Math.max(rest, Math.abs(to[i] - v));
      return still.matches || Math.abs(to[i] - v) < .3 ? to[i] : v + (to[i] - v) * .12;
    });
    for (const one of this.members.values()) {
      one.place = toward(one.place, one.goal);
      one.node.setAttribute('transform', `translate(${one.place})`);
    }
    if (this.leader) this.hub = toward(this.hub || this.leader.place, this.leader.place);
    for (const one of this.members.values()) if (this.hub) {
      const [dx, dy] = [one.place[0] - this.hub[0], one.place[1] - this.hub[1]];
      const far = Math.hypot(dx, dy) || 1;
      const end = (from, d, by) => from + d / far * by;
      put(one.line, { x1: end(this.hub[0], dx, 32), y1: end(this.hub[1], dy, 32), x2: end(one.place[0], dx, -32),
        y2: end(one.place[1], dy, -32) }, []);
    }
    this.moving = rest > .3 ? requestAnimationFrame(() => this.move()) : 0;
  },
};
addEventListener('resize', () => { show(); strip(); backups.draw(); contents.draw(); });

// The past: a slider through what was decided.
function past() {
  const slider = $('slider');
  const n = history.moments.length;
  slider.max = n;
  slider.disabled = !n;
  $('play').disabled = n < 2;
  if (at >= n) at = -1;
  strip();
  const told = history.moments.map((m, i) => [i, utc(m.time), m.cluster, m.changes]).reverse();
  fill($('events'), told, ([i, time, c, changes]) => h('li', {}, h('button', { onclick: () => go(i), 'data-at': i },
    h('time', {}, time), h('span', {}, h('b', { class: c.mood }, c.status), ' ', c.message),
    ...changes.map(words => h('i', {}, words)))));
  go(at);
}

// strip has a colour for each moment, and for now.
function strip() {
  const moods = history ? history.moments.map(m => m.cluster.mood).concat(current().mood) : [];
  const svg = $('strip');
  svg.setAttribute('viewBox', `0 0 ${Math.max(1, moods.length)} 10`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.replaceChildren(...moods.map((mood, i) =>
    s('rect', { x: i, y: 0, width: moods.length > 80 ? 1 : .9, height: 10, class: mood })));
}

function go(to) {
  const n = history ? history.moments.length : 0;
  at = to >= n ? -1 : to;
  const slider = $('slider');
  slider.value = at < 0 ? n : at;
  const moment = at >= 0 && history.moments[at];
  slider.setAttribute('aria-valuetext', moment ? `${utc(moment.time)}: ${moment.cluster.status}` : 'now');
  $('earlier').disabled = !n || at === 0;
  $('later').disabled = at < 0;
  for (const rect of $('strip').children) rect.classList.toggle('at', rect.x.baseVal.value === (at < 0 ? n : at));
  const box = $('events');
  if (at < 0) box.scrollTop = 0;
  for (const button of box.querySelectorAll('button')) {
    const here = Number(button.dataset.at) === at;
    button.setAttribute('aria-current', here);
    if (here && document.activeElement !== button)
      box.scrollTop = button.offsetTop - box.offsetTop - box.clientHeight / 2;
  }
  show();
}

function play() {
  clearInterval(playing);
  const stop = playing;
  playing = 0;
  if (!stop) {
    if (at < 0) go(0);
    playing = setInterval(() => { go(at + 1); if (at < 0) play(); }, 700);
  }
  say($('play'), playing ? 'Stop' : 'Play');
}

const before = () => at < 0 ? history.moments.length - 1 : at - 1;
$('slider').addEventListener('input', event => go(Number(event.target.value)));
$('earlier').addEventListener('click', () => go(before()));
$('later').addEventListener('click', () => go(at + 1));
$('live').addEventListener('click', () => go(-1));
$('play').addEventListener('click', play);

$('explain').addEventListener('click', async () => {
  const c = current(), moment = at >= 0 ? history.moments[at].time : '';
  const text = $('explanation');
  text.hidden = false;
  say($('explained'), moment ? command('history', c, ' --at=' + moment) : command('explain', c));
  say(text, 'asking …');
  $('explain').disabled = true;
  try {
    say(text, await ask('explain', { ...about(c), at: moment }));
  } catch (error) {
    say(text, error.message);
  }
  $('explain').disabled = false;
  say($('told'), 'The explanation is there.');
});

// copyable is a command with what it is for, and a button that copies it.
function copyable(words, line, tag = 'div') {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      say($('told'), 'Copied: ' + line);
    } catch {
      say($('told'), 'The browser does not let this page copy; select the command.');
    }
  };
  return h(tag, { class: 'command' }, h('span', {}, h('small', {}, words), h('code', {}, line)),
    h('button', { onclick: copy, 'aria-label': 'Copy: ' + line }, 'Copy'));
}

function commands(c, moment) {
  const other = c.members.find(m => m.role === 'Voter' && m.ready && !m.leads);
  const lines = [
    ['the same in a terminal', command('status', c)],
    moment && ['what was decided at this moment', command('history', c, ' --at=' + moment.time)],
    ['take a snapshot', command('snapshot', c, ' --wait')],
    other && ['let another member lead', command('move-leader', c, ' ' + other.name)],
    ['hold every change back until resume', command('suspend', c)],
    ['a support bundle without secrets', command('report', c)],
  ].filter(Boolean);
  fill($('list'), lines, ([words, line]) => copyable(words, line, 'li'));
}

// Snapshots and streams, and the restore that each allows.
async function backups() {
  const c = current(), of = chosen;
  try {
    const stored = await ask('stored', about(c));
    if (of !== chosen) return;
    backups.stored = stored;
    backups.draw();
    say($('nothing'), stored.snapshots.length ? '' :
      `Nothing is stored: ${command('snapshot', c)} takes a snapshot, once an EtcdSnapshotSchedule says where to.`);
  } catch (error) {
    if (of === chosen) say($('nothing'), error.message);
  }
}

backups.draw = () => {
  const stored = backups.stored, svg = $('line');
  if (!stored || !stored.snapshots.length) return;
  $('backups').hidden = false;
  const width = svg.clientWidth || 400;
  const from = new Date(stored.snapshots[0].time).getTime(), to = Date.now();
  const x = time => 8 + (width - 16) * Math.min(1, Math.max(0, (new Date(time) - from) / Math.max(1, to - from)));
  svg.setAttribute('viewBox', `0 0 ${width} 64`);
  svg.setAttribute('aria-label', [count(stored.snapshots.length, 'snapshot'), 'and',
    count(stored.streams.length, 'stream'), 'since', utc(from)].join(' '));
  const moment = from + (to - from) * $('until').value / 1000;
  svg.replaceChildren(
    ...stored.streams.map(t => s('rect', { class: 'band', x: x(t.from), y: 8, width: Math.max(2, x(t.to) - x(t.from)),
      height: 24, rx: 4 },
      s('title', {}, `${t.name}: ${t.runs ? 'stores all changes' : 'stores nothing at present'}. ${t.message}`))),
    s('line', { class: 'axis', x1: 8, x2: width - 8, y1: 20, y2: 20 }),
    ...stored.snapshots.map(n => s('circle', { cx: x(n.time), cy: 20, r: 6,
      class: 'dot' + (!n.restorable ? ' not' : n.verified ? '' : ' unverified') },
      s('title', {}, `${n.name}, ${n.phase}, ${utc(n.time)}`))),
    s('line', { class: 'cursor', x1: x(moment), x2: x(moment), y1: 0, y2: 40 }),
    s('text', { class: 'small left', x: 4, y: 58 }, utc(from)),
    s('text', { class: 'small right', x: width - 4, y: 58 }, 'now'));
  backups.choose(moment);
  table($('snapshots'), ['Snapshot', 'Stored', 'Phase', 'Revision', 'Size', 'Remarks'], stored.snapshots.map(n =>
    [n.name, utc(n.time), n.phase + (n.verified ? ', verified' : ''), n.revision || '–', n.size ? bytes(n.size) : '–',
      n.message]).reverse());
};

backups.choose = moment => {
  const c = current(), stored = backups.stored;
  const base = stored.snapshots.filter(n => n.restorable && new Date(n.time) <= moment).pop();
  const newest = $('until').value === '1000';
  const has = t => new Date(t.from) <= moment && (newest || moment <= new Date(t.to).getTime() + 60000);
  const stream = stored.streams.find(has);
  $('until').setAttribute('aria-valuetext', newest ? 'the latest' : utc(moment));
  const after = !stream ? '; what was written after it is not stored.'
    : `, and what ${stream.name} has stored after it${stream.runs ? '' : ', until ' + utc(stream.to)}.`;
  say($('restores'), !base ? `No snapshot from before ${utc(moment)} can be restored.`
    : `${newest ? 'The latest' : utc(moment)}: snapshot ${base.name} of ${utc(base.time)}${after}`);
  const end = stream ? ' --until=' + (newest ? 'latest' : second(moment)) : base && ' --snapshot=' + base.name;
  fill($('restore'), base ? [command('restore', c, end + ' --dry-run')] : [], line =>
    copyable('see what it would create, then leave out --dry-run', line));
};
$('until').addEventListener('input', () => backups.draw());
setInterval(() => { if (!document.hidden && current() && !$('until').matches(':focus')) backups(); }, 30000);

// What fills it, as areas.
async function contents() {
  const c = current(), of = chosen;
  try {
    const told = await ask('contents', about(c));
    if (of !== chosen) return;
    contents.told = told;
    const by = told.time ? 'Keys and bytes by the account of ' + utc(told.time) + '.' :
      'No account of its keys is there yet: one is made while a snapshot is verified. ' + command('snapshot', c, ' --wait');
    const writes = told.from ? ` Writes from ${utc(told.from)} to ${utc(told.to)}, as its stream saw them.` : '';
    say($('account'), [by + writes, ...told.notes].join(' '));
    measures({ bytes: told.time, keys: told.time, writes: told.from });
    contents.draw();
  } catch (error) {
    if (of === chosen) say($('account'), error.message);
  }
}

// measures lets areas be chosen by what is told.
function measures(told) {
  const all = [...document.querySelectorAll('input[name=by]')];
  for (const one of all) one.disabled = !told[one.value];
  const able = all.filter(one => !one.disabled);
  const now = able.find(one => one.checked) || able[0];
  if (now) now.checked = true;
}

contents.draw = () => {
  const told = contents.told, svg = $('treemap');
  if (!told?.prefixes.length) return;
  $('map').hidden = false;
  const by = document.querySelector('input[name=by]:checked').value;
  const all = [...told.prefixes].sort((a, b) => b[by] - a[by]);
  const rest = all.slice(40).reduce((sum, p) => sum + p[by], 0);
  const parts = all.slice(0, 40).concat(rest ? [{ prefix: 'others', [by]: rest }] : []).filter(p => p[by] > 0);
  const width = svg.clientWidth || 400, height = 260;
  const sum = parts.reduce((n, p) => n + p[by], 0);
  const amount = p => by === 'bytes' ? bytes(p.bytes) : count(p[by], by.slice(0, -1));
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('aria-label', 'The largest: ' + parts.slice(0, 3).map(p => `${p.prefix} ${amount(p)}`).join(', '));
  const places = squares(parts.map(p => p[by] / sum * width * height), 0, 0, width, height);
  svg.replaceChildren(...places.map(([x, y, w, tall], i) => {
    const p = parts[i];
    const fits = Math.floor((w - 10) / 7.2);
    const cut = p.prefix.length > fits ? '…' + p.prefix.slice(1 - fits) : p.prefix; // its end tells them apart
    return s('g', {}, s('title', {}, `${p.prefix}: ${amount(p)}`),
      s('rect', { x, y, width: w, height: tall, rx: 4, 'fill-opacity': .12 + .5 * p[by] / parts[0][by] }),
      ...(w > 46 && tall > 20 ? [s('text', { x: x + 7, y: y + 16 }, cut)] : []),
      ...(w > 60 && tall > 36 ? [s('text', { class: 'small', x: x + 7, y: y + 31 }, amount(p))] : []));
  }));
  table($('prefixes'), ['Prefix', 'Keys', 'Bytes', 'Writes'],
    all.map(p => [p.prefix, p.keys, bytes(p.bytes), told.from ? p.writes : '']));
};

// squares lays areas out, the largest first, in rows along the shorter side that come close to squares.
function squares(areas, x, y, w, tall) {
  const placed = [];
  for (let i = 0; i < areas.length;) {
    const side = Math.min(w, tall);
    const worst = row => {
      const sum = row.reduce((a, b) => a + b, 0);
      return Math.max(side * side * row[0] / (sum * sum), sum * sum / (side * side * row[row.length - 1]));
    };
    const row = [areas[i]];
    for (let next; (next = areas[i + row.length]) && worst([...row, next]) <= worst(row);) row.push(next);
    const thick = row.reduce((a, b) => a + b, 0) / side;
    let along = 0;
    for (const area of row) {
      placed.push(w > tall ? [x, y + along, thick, area / thick] : [x + along, y, area / thick, thick]);
      along += area / thick;
    }
    if (w > tall) { x += thick; w -= thick; } else { y += thick; tall -= thick; }
    i += row.length;
  }
  return placed;
}
$('map').addEventListener('change', () => contents.draw());

look();
