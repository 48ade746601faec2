"""One module per API: what a request means, in every version that is answered.

`kafka_apis` and `controller_apis` say which handler serves which API on which listener. A handler
takes a decoded request and gives the response, or nothing if it comes later; beside it stands the
function that says "all of this failed" in the shape of that response.
"""
