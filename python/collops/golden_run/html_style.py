"""The style sheet of the page of a run."""

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.count { display: inline-block; margin: 0 1em .5em 0; padding: .3em .8em; border-radius: .4em;
  background: var(--soft); border-left: .3em solid var(--line); }
.count.passed, .state.passed { border-color: #2a9d4a; } .state.passed { color: #2a9d4a; }
.count.failed, .state.failed { border-color: #d33; }
.state.failed { color: #d33; font-weight: bold; }
.state.skipped, .state.differs { color: #b07a00; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2em 1em; }
dt { font-weight: bold; } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25em .6em; vertical-align: top; }
tr + tr:not(.more) { border-top: 1px solid var(--line); }
tr:target, tr:target + tr { background: #fc03; }
.more td { padding-top: 0; } .more p { margin: .2em 0; }
pre { background: var(--soft); padding: .6em .8em; margin: .3em 0; white-space: pre-wrap;
  overflow-wrap: anywhere; }
img { max-width: 100%; background: white; display: block; margin: .5em 0; }
summary { cursor: pointer; } td pre { font-size: .85em; }
"""
