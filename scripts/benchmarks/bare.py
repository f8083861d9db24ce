"""The floors of a round: a service without tokens, noise or ledger, which answers with as many bytes as it was asked.

    python -m scripts.benchmarks.bare PORT ROWS D

``/echo`` gives back the bytes of a query. ``/gradient`` computes on as many examples as a party has, as plainly as it
goes in NumPy: no clipping, no grid, nothing private.
"""

from __future__ import annotations

import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from scipy.special import expit
from threadpoolctl import threadpool_limits

app = FastAPI()
port, rows, d = map(int, sys.argv[1:])
rng = np.random.default_rng(port)
X, y = rng.uniform(-1, 1, (rows, d)), rng.choice([-1.0, 1.0], rows)


@app.get("/readyz")
async def readyz() -> None:
    """Answer that the service is ready."""


@app.put("/echo")
async def echo(request: Request) -> Response:
    """Return the bytes of the query."""
    return Response(await request.body())


@app.put("/gradient")
async def gradient(request: Request) -> Response:
    """The sum of the logistic loss's gradients at the weights of the query."""
    weights = np.frombuffer(await request.body())
    return Response(((-y * expit(-y * (X @ weights))) @ X).tobytes())


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):  # as a party computes: five of them share the machine
        uvicorn.run(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")
