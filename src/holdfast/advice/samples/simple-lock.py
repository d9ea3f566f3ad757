import holdfast

locks = holdfast.connect()


@locks.once("report:daily", at_least=60)  # one of many schedulers runs it; the others skip
def report():
    return "made"


report()
locks.close()
