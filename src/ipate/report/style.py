"""How the report looks: one style sheet for both schemes, both widths and paper."""

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --panel: #f4f6f8; --ink: #1b1f24; --soft: #4f5a66;
  --line: #c3cad2; --alert: #8f1d14; --alert-ink: #ffffff; --warn: #5c3b00; --warn-page: #ffe9b8; --link: #0b5394;
  --series-1: #0072b2; --series-2: #c44e00; --series-3: #00805c; --series-4: #a3507d; --series-5: #8a6d00;
  --series-6: #444c55; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --panel: #1e242b; --ink: #e9edf1; --soft: #aab4bf;
  --line: #475260; --alert: #b3261a; --alert-ink: #ffffff; --warn: #ffe9b8; --warn-page: #4a3500; --link: #7fc0ff;
  --series-1: #56b4e9; --series-2: #f0904a; --series-3: #35c49a; --series-4: #dd94bb; --series-5: #e6cf4a;
  --series-6: #c5ccd4; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, "Liberation Sans", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
main { max-width: 62rem; margin: 0 auto; padding: 1rem 1.25rem 3rem; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 1rem 0 .25rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.5rem 0 .5rem; padding-top: .5rem;
  border-top: 2px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .25rem; }
p, ul { margin: .5rem 0; max-width: 46rem; } ul { padding-left: 1.25rem; } li { margin: .3rem 0; }
.lead { font-size: 1.15rem; font-weight: 600; } .soft { color: var(--soft); }
.marks { position: sticky; top: 0; z-index: 1; text-align: center; font-weight: 700; }
.marks div { padding: .35rem 1rem; background: var(--alert); color: var(--alert-ink); }
.marks div + div, .marks .seeded { background: var(--warn-page); color: var(--warn); }
.promise { background: var(--panel); border-left: .35rem solid var(--series-1); padding: .6rem 1rem; margin: .75rem 0;
  max-width: 48rem; } .promise.none { border-left-color: var(--alert); } .promise h3 { margin: 0 0 .15rem; }
.promise p { margin: 0; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .35rem .6rem; text-align: left; border-bottom: 1px solid var(--line); vertical-align: top; }
th, td { overflow-wrap: normal; } tbody th { overflow-wrap: anywhere; min-width: 6.5rem; }
tbody td:not(.number) { overflow-wrap: anywhere; }
thead th { color: var(--soft); font-size: .9em; vertical-align: bottom; } tbody th { font-weight: 600; }
.number { text-align: right; white-space: nowrap; } thead .number { white-space: normal; }
figure { margin: 1.25rem 0; } figcaption { color: var(--soft); max-width: 46rem; }
figure svg { display: block; width: 100%; height: auto; } .narrow { display: none; }
.wide { max-width: 56rem; }
pre { background: var(--panel); padding: .75rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.45;
  white-space: pre-wrap; font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
footer { margin-top: 3rem; padding-top: .75rem; border-top: 2px solid var(--line); color: var(--soft); }
@media screen and (max-width: 40rem) { main { padding: .5rem .9rem 2rem; } h1 { font-size: 1.45rem; }
  .wide { display: none; } .narrow { display: block; }
  table, tbody, tr, th, td { display: block; } caption { display: block; } thead { position: absolute; left: -9999px; }
  tbody tr { border-bottom: 2px solid var(--line); padding: .4rem 0; }
  tbody th, tbody td { border: 0; padding: .1rem 0; }
  tbody td { display: flex; justify-content: space-between; gap: 1rem; text-align: right; white-space: normal; }
  tbody td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: 0 1 auto; }
  .pair tbody tr { display: flex; justify-content: space-between; gap: 1rem; border-bottom-width: 1px; }
  .pair tbody th { flex: 1 1 40%; } .pair tbody td { flex: 0 1 auto; max-width: 60%; }
  .pair tbody td::before { content: none; } }
@media print { :root { color-scheme: light; --page: #ffffff; --panel: #f4f6f8; --ink: #000000; --soft: #3c444d;
  --line: #b4bcc5; --alert: #8f1d14; --alert-ink: #ffffff; --warn: #5c3b00; --warn-page: #ffe9b8;
  --series-1: #0072b2; --series-2: #c44e00; --series-3: #00805c; --series-4: #a3507d; --series-5: #8a6d00;
  --series-6: #444c55; }
  @page { size: A4; margin: 16mm 15mm; @bottom-right { content: counter(page); font: 9pt sans-serif; } }
  body { font-size: 10pt; } main { max-width: none; padding: 0; }
  .sheet { display: table; width: 100%; } .marks { display: table-header-group; position: static;
  break-inside: avoid; }
  .marks div { border: 1.5pt solid #000000; color: #000000; background: none; margin-bottom: 3mm; }
  main { display: table-row-group; } h2 { break-after: avoid; } tr, figure, .promise, li { break-inside: avoid; }
  table { font-size: 9pt; break-inside: avoid; } caption { break-after: avoid; }
  .narrow { display: none; } .wide { display: block; }
  pre { font-size: 8pt; } }
"""
