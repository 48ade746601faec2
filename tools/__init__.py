"""The workshop: generators and checks that build Millstream. Not installed with it."""
