"""The figures of the sources, run again: recipes, measures, verdicts, pictures.

```
recipes/*.yaml ──► Recipe ──► runs (a sweep's points and seeds) ──► measures ──► verdicts
                                                                └──► figure, index.html
```
"""
