// How the search orders what it finds: what says what to do comes before lists, the API, measurements and decisions.
// The numbers are Sphinx' own (searchtools.js), except those of words in the text, which weigh less there than titles do.
const last = [/^docs\/reference\/(api|lists)/, /^docs\/decisions\//, /^docs\/evidence\//, /^CHANGELOG/];

var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    last.some((pages) => pages.test(page)) ? score / 10 - 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
