"""The secure sum: the learner sees the sum of the parties' answers and nothing more about them.

Paillier with a learner's pad and key holders. A party packs its integers into plaintexts P below 2^L and splits them, P
= r + s_1 + ... + s_m modulo 2^L (`packing`). The learner gets the seed of r, and each s_j encrypted for key holder j
(`paillier`) and sealed (`envelope`), so that nobody else can use it. Key holder j multiplies the contributors'
ciphertexts, decrypts, reduces modulo 2^L and answers with the sum of the s_j; the learner adds the pads. So a single
ciphertext decrypts to noise, for anyone.

Three roles, each a state and a table of transitions, without I/O, clock or randomness of their own::

    learner                      key holder                 party
    propose ------ Roster -----> accept
    invite  ------ Roster --------------------------------> join          `messages`: what travels
    ask     ------ Query ---------------------------------> receive       `envelope`: how it is spelt and signed
    receive <----- Contribution --------------------------- answer
    open    ------ Open -------> open
    close   <----- Opened ------ (journalled first)

It is secure against a curious learner together with any parties, as long as one of {learner, key holders} does not
collude with the others; such parties may answer anything that does not depend on others' answers. A malicious learner
gets at most one sum in a round, over at least m_min rostered parties, for one committed query. Not covered: wrong
inputs, availability, a lying key holder, traffic analysis.
"""
