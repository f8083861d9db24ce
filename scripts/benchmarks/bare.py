"""The floor of a round: a service that does nothing but take the bytes of a query and give back as many.

python scripts/benchmarks/bare.py PORT
"""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI, Request, Response

app = FastAPI()


@app.get("/readyz")
async def readyz() -> None:
    """It is ready."""


@app.put("/round")
async def answer(request: Request) -> Response:
    """As many bytes as were asked with."""
    return Response(await request.body())


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="warning")
