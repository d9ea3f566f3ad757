import os
from urllib.parse import urlsplit

import pymysql

from holdfast.lockfree import optimistic

# here: mysql.py
cursor.execute("CREATE TABLE IF NOT EXISTS account (id INT PRIMARY KEY, balance INT, version INT NOT NULL)")
cursor.execute("INSERT IGNORE INTO account VALUES (42, 100, 0)")


# here: optimistic.py
db.close()
