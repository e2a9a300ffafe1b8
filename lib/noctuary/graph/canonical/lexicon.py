"""Closed word lists of canonicalisation, all folded. Lists only; every look-up is one hash."""

from __future__ import annotations

_STAGES_TEXT = """
    alpha beta canary classic dev experimental final draft latest legacy lite lts max mini nano
    next nightly old new plus preview pro prod production rc release snapshot stable staging test
    ultra deprecated junior jr senior sr elder younger
"""

STAGES = frozenset(_STAGES_TEXT.split())
"""Words that tell releases, editions or generations of one thing apart."""

NEGATIONS = frozenset(
    {"not", "no", "non", "never", "without", "cannot", "anti", "counter", "ex", "former"}
)
"""Words that turn a name into its opposite or end it."""

NEGATING_PREFIXES = (
    "un", "non", "in", "im", "ir", "il", "dis", "de", "anti", "mis", "pre", "post", "a", "sub",
)  # fmt: skip
"""What stands before a word to make another one of it; only where the rest is the other's word."""

_OPPOSITES_TEXT = """
    active inactive  add remove  after before  aunt uncle  autumn spring  best worst  boy girl
    breakfast dinner  brother sister  buy sell  client server  close open  cold hot  create delete
    daughter son  day night  decrease increase  destination source  disable enable  download upload
    east west  eastern western  morning evening  export import  income expense  external internal
    fail pass  failure success  father mother  female male  start finish  first last  front back
    grandfather grandmother  high low  horizontal vertical  husband wife  inbound outbound  in out
    input output  install uninstall  king queen  left right  load save  profit loss  gain loss
    lock unlock  long short  win lose  love hate  lower upper  manual automatic  man woman
    men women  maximum minimum  minor major  mount unmount  north south
    northern southern  off on  old young
    optional required  parent child  past future  prince princess  private public  pull push
    read write  reader writer  receive send  receiver sender  request response  row column
    safe unsafe  slow fast  strong weak  stop start  strength weakness  summer winter  sync async
    teacher student  top bottom  true false  up down  weekday weekend  yes no  encode decode
    encoder decoder  emperor empress  duke duchess  count countess  actor actress  nephew niece
    hero heroine  pro con  pros cons  asset liability  debit credit  lender borrower
    landlord tenant  employer employee  producer consumer  more less  pre post  full empty
"""


def _opposites() -> frozenset[tuple[str, str]]:
    words = _OPPOSITES_TEXT.split()
    pairs = list(zip(words[::2], words[1::2], strict=True))
    return frozenset(pairs + [(right, left) for left, right in pairs])


OPPOSITES = _opposites()
"""Ordered pairs of words, both ways round, that must not stand for one another."""
