"""Exercises for a class: handed out, checked by the students, graded by the teacher.

The teacher's class folder:

```
class.yaml    the class, its exercise and its students
key           32 random bytes; seeds, parameters and tickets are their HMACs
exercise/     a copy of the exercise, with its solution
handout/ID/   a folder for each student
```

The folder of one student, in which nothing leads to an answer:

```
task.md           the task sheet
assignment.yaml   what was issued, with a ticket; and the questions without their answers
configs/          configurations with gaps, to start from
answers.yaml      the answers, each with its unit and the run it comes from
runs/             one run directory for each configuration
config.md         the reference of all keys of configurations
notebook.py       if the exercise has one
```
"""
