# SPDX-License-Identifier: Apache-2.0
"""A Flight server that holds a column of float32 in memory and serves it in batches.

python flight_server.py BYTES    A ticket states the size of one batch in bytes.
"""

import sys

import numpy as np
import pyarrow as pa
from pyarrow import flight


class ColumnServer(flight.FlightServerBase):
    def __init__(self, num_bytes: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._column = pa.array(np.ones(num_bytes // 4, np.float32))

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.RecordBatchStream:
        del context
        rows = int(ticket.ticket) // 4
        chunks = [self._column.slice(begin, rows) for begin in range(0, len(self._column), rows)]
        table = pa.table({"bias": pa.chunked_array(chunks)})
        return flight.RecordBatchStream(table)


if __name__ == "__main__":
    server = ColumnServer(int(sys.argv[1]))
    print(f"listening on grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()
