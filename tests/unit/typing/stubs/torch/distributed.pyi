class ReduceOp:
    class RedOpType: ...

    SUM: RedOpType
    AVG: RedOpType
