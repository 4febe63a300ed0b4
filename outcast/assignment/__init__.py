"""An assignment for students: makes its folders, checks what is missing in them, grades them.

The folder of one student:

```
task.md           the task sheet, which the teacher can edit before handing it out
assignment.yaml   the assignment, the student, and the seed that follows from both
configs/          configurations with gaps, to start from
answers.yaml      the answers, each with its unit and the run it comes from
runs/             one run directory for each configuration
read_run.py       a notebook that loads a run's tables
```
"""
