"""Which signal tells that a store holds no answer, and what abstaining by it costs and saves."""
