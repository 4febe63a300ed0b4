"""An assignment for students: its folder made, checked for what is missing, and graded.

The folder of one student:

```
task.md           the task sheet, for the teacher to edit before it is handed out
assignment.yaml   which assignment, whose, and the seed that follows from both
configs/          starter configurations with gaps
answers.yaml      the answers, each with its unit and the run that it is read from
runs/             one run directory for each configuration
read_run.py       a notebook that loads a run's tables
```
"""
