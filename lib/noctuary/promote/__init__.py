"""The ingestion gate: which turns of a person are proposed as durable memories.

The order of the modules is the order of a turn's way:

    speakers                  does a person say it, and what follows the label
    code_marks, technical     T, P, A and Dt: is it technical, how specific, actionable, structured
    conversational            D: dates, quantities, people, preferences, facts
    signals                   all five of a text
    neighbours                earlier turns and durable memories that are like it
    scalar                    the gating scalar G of libravdb
    walk                      turn after turn: H and R, G, the decision
    candidates                the turns of a corpus by user, and what each user's memories are
    table, listing            proposals.parquet, and the same with texts for people

What does not belong here: writing to a source (nothing here does), the stage (`noctuary.night`).
Nothing is imported here.
"""
