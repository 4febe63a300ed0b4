"""Runs the experiments behind the sources' figures again, and judges the results.

```
recipes/*.yaml ──► Recipe ──► runs (a sweep's points and seeds) ──► measures ──► verdicts
                                                                └──► figure, index.html
```
"""
