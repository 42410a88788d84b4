// The page in light or dark as its reader chose, the pages of a narrow window, and the search.
(() => {
  const root = document.documentElement;
  const stored = (() => { try { return localStorage.getItem('theme'); } catch { return null; } })();
  if (stored) root.dataset.theme = stored;

  const escape = (text) => text.replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
  const marked = (text, words) => {
    const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 60);
    const piece = (at ? '… ' : '') + text.slice(at, at + 200) + (at + 200 < text.length ? ' …' : '');
    const any = new RegExp(words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|'), 'gi');
    let html = '', end = 0;
    for (const m of piece.matchAll(any)) {
      html += escape(piece.slice(end, m.index)) + '<mark>' + escape(m[0]) + '</mark>';
      end = m.index + m[0].length;
    }
    return html + escape(piece.slice(end));
  };

  // A part is found if it has every word. Words of headings count most, then how often the text has them.
  const find = (words) => window.parts.map((p) => {
    const page = p.P.toLowerCase(), heading = p.H.toLowerCase(), text = p.T.toLowerCase();
    let score = p.U.startsWith('decisions/') ? 0 : 2;
    for (const w of words) {
      const often = text.split(w).length - 1;
      if (!often && !heading.includes(w) && !page.includes(w)) return null;
      score += (heading.includes(w) ? 12 : 0) + (heading === w ? 8 : 0) + (page.includes(w) ? 6 : 0) + Math.min(often, 5);
    }
    return { ...p, score };
  }).filter(Boolean).sort((a, b) => b.score - a.score).slice(0, 20);

  document.addEventListener('DOMContentLoaded', () => {
    const up = document.body.dataset.up;
    const box = document.getElementById('search'), found = document.getElementById('found');
    const menu = document.getElementById('menu'), pages = document.getElementById('pages');

    document.getElementById('theme').onclick = () => {
      const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
      root.dataset.theme = dark ? 'light' : 'dark';
      try { localStorage.setItem('theme', root.dataset.theme); } catch { /* a window that stores nothing */ }
    };
    menu.onclick = () => menu.setAttribute('aria-expanded', pages.classList.toggle('open'));
    const here = pages.querySelector('[aria-current]');
    if (here && here.offsetTop > pages.clientHeight) pages.scrollTop = here.offsetTop - pages.clientHeight / 2;

    let loading;
    const load = () => loading ??= new Promise((done) => {
      const script = document.createElement('script');
      script.src = up + 'search.js';
      script.onload = done;
      document.head.append(script);
    });
    const show = async () => {
      await load();
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      found.hidden = !words.length;
      if (!words.length) return;
      found.innerHTML = find(words).map((p) => `<a href="${up}${escape(p.U)}"><b>${escape(p.H)}</b>` +
        `<span>${escape(p.P)}</span><span>${marked(p.T, words)}</span></a>`).join('') || '<p>Nothing has all these words.</p>';
    };
    box.onfocus = load;
    box.oninput = show;
    found.onclick = () => { found.hidden = true; };
    document.addEventListener('click', (e) => { if (!e.target.closest('.search')) found.hidden = true; });
    document.addEventListener('keydown', (e) => {
      const links = [...found.querySelectorAll('a')], at = links.indexOf(document.activeElement);
      if (e.key === '/' && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) { e.preventDefault(); box.focus(); }
      if (e.key === 'Escape') { found.hidden = true; pages.classList.remove('open'); }
      if (e.key === 'Enter' && document.activeElement === box && links[0]) links[0].click();
      if (found.hidden || !/^Arrow(Up|Down)$/.test(e.key)) return;
      e.preventDefault();
      (links[at + (e.key === 'ArrowDown' ? 1 : -1)] ?? box).focus();
    });
  });
})();
