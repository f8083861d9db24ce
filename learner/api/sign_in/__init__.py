"""How people sign in to the page by OpenID Connect; loaded only by a learner whose settings say so."""
